# attnbench on NVIDIA GPUs, with the torch of the base image:
#   docker build -f docker/cuda.Dockerfile -t attnbench-cuda .
#   docker run --rm --gpus all -v "$PWD/runs:/attnbench/runs" attnbench-cuda run configs/demo.toml
FROM pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime
WORKDIR /attnbench
COPY . .
# pip fails rather than exchange the torch that is there.
RUN python -c "import torch; print(f'torch=={torch.__version__}')" >/tmp/torch.txt \
    && pip install --no-cache-dir --constraint /tmp/torch.txt --editable ".[tune,energy]"
ENTRYPOINT ["attnbench"]
