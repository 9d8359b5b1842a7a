#!/bin/sh
# Make the peers' environments under .peers/, one each, from the package registry; a second call mends or does nothing.
#   sh benchmarks/peers/install.sh [NAME ...]
# torch comes first and alone, in our version; the toolkits come without dependencies, for they would exchange it.
set -eu
cd "$(dirname "$0")/../.."
torch=$(grep '^torch==' constraints.txt)
numpy=$(grep '^numpy==' constraints.txt)

make() { # NAME TOOLKIT PACKAGE... : the toolkit without dependencies, and what it imports
    name=$1 toolkit=$2
    shift 2
    python=.peers/$name/bin/python
    [ -x "$python" ] || "${PYTHON:-python3}" -m venv ".peers/$name"
    [ "$name" = ctranslate2 ] || "$python" -m pip install --quiet "$torch" "$numpy"
    pins=.peers/$name/pins.txt
    "$python" -m pip freeze | grep -E '^(torch|numpy)==' >"$pins" || echo "$numpy" >"$pins"
    "$python" -m pip install --quiet --constraint "$pins" "$@"
    "$python" -m pip install --quiet --no-deps "$toolkit"
    echo "$name: $toolkit"
}

[ $# -gt 0 ] || set -- joeynmt eole opennmt-py ctranslate2
for name in "$@"; do
    case $name in
    joeynmt) make joeynmt joeynmt==2.3.0 importlib_metadata pyyaml packaging sentencepiece subword-nmt tensorboard sacrebleu matplotlib ;;
    eole) make eole eole==0.6.4 aiohttp safetensors pyyaml pydantic sacrebleu rich six tensorboard rapidfuzz pyonmttok huggingface_hub ;;
    opennmt-py) make opennmt-py OpenNMT-py==3.5.1 configargparse pyonmttok pyyaml sacrebleu six spacy pyahocorasick rapidfuzz flask waitress tensorboard fasttext-wheel ;;
    ctranslate2) make ctranslate2 "ctranslate2>=4.8,<4.9" pyyaml setuptools ;;
    *)
        echo "install: no peer $name" >&2
        exit 2
        ;;
    esac
done
