#!/bin/sh
# Make the peers' environments under .peers/, one each, from the package registry; a second call installs nothing.
#   sh benchmarks/peers/install.sh [NAME ...]
#   PYTHON=python3.11 sh benchmarks/peers/install.sh      with another Python than python3
# torch comes first, alone and in our version. The toolkits come without dependencies, which would exchange it,
# and with what they import; pip then complains that the rest is missing.
set -eu
cd "$(dirname "$0")/../.."

make() { # NAME TOOLKIT PACKAGE...
    name=$1 toolkit=$2 python=.peers/$1/bin/python stamp=.peers/$1/installed
    torch=$(grep '^torch==' constraints.txt) numpy=$(grep '^numpy==' constraints.txt)
    [ "$name" != ctranslate2 ] || torch=""
    shift 2
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$toolkit $torch $numpy $*" ]; then
        return
    fi
    "${PYTHON:-python3}" -m venv --clear ".peers/$name"
    printf '%s\n' $torch "$numpy" >".peers/$name/pins.txt"
    "$python" -m pip install --quiet $torch "$numpy"
    "$python" -m pip install --quiet --constraint ".peers/$name/pins.txt" "$@"
    "$python" -m pip install --quiet --no-deps "$toolkit"
    printf '%s' "$toolkit $torch $numpy $*" >"$stamp"
    echo "$name: $toolkit installed"
}

[ $# -gt 0 ] || set -- joeynmt eole opennmt-py ctranslate2
for peer in "$@"; do
    case $peer in
    joeynmt)
        make joeynmt joeynmt==2.3.0 importlib_metadata packaging pyyaml sentencepiece subword-nmt sacrebleu \
            matplotlib tensorboard
        ;;
    eole)
        make eole eole==0.6.4 aiohttp huggingface_hub pydantic pyonmttok pyyaml rapidfuzz rich sacrebleu \
            safetensors six tensorboard
        ;;
    opennmt-py)
        make opennmt-py OpenNMT-py==3.5.1 configargparse fasttext-wheel pyahocorasick pyonmttok pyyaml \
            rapidfuzz sacrebleu six spacy tensorboard
        ;;
    ctranslate2)
        make ctranslate2 ctranslate2==4.8.5 pyyaml setuptools
        ;;
    *)
        echo "install: no peer $peer: name joeynmt, eole, opennmt-py or ctranslate2" >&2
        exit 2
        ;;
    esac
done
