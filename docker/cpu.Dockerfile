# attnbench on CPUs:
#   docker build -f docker/cpu.Dockerfile -t attnbench .
#   docker run --rm -v "$PWD/runs:/attnbench/runs" attnbench run configs/demo.toml
# pip's own torch for Linux includes CUDA (several GB). For the CPU build, name its index (see pytorch.org):
#   docker build --build-arg TORCH_INDEX=URL ...
FROM python:3.12-slim
ARG TORCH_INDEX=""
WORKDIR /attnbench
COPY constraints.txt .
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)"
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --editable ".[tune]"
ENTRYPOINT ["attnbench"]
