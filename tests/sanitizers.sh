#!/usr/bin/env bash
# Builds the extension with AddressSanitizer and UndefinedBehaviorSanitizer in a scratch folder, and runs the tests that
# call it most on that build. Leaves this checkout as it is. Needs GCC or Clang, CMake and nanobind.
#
#     bash tests/sanitizers.sh                      # what is listed below, on 20 examples a property
#     RELIVE_EXAMPLES=500 bash tests/sanitizers.sh tests/property
#
# PYTHON names the interpreter (python3 otherwise), RELIVE_SCRATCH a folder that is kept and built in again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(command -v "${PYTHON:-python3}")
compiler=${CXX:-c++}

scratch=${RELIVE_SCRATCH:-}
if [[ -z $scratch ]]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
fi
cmake -S . -B "$scratch/build" -DCMAKE_BUILD_TYPE=Debug -DRELIVE_SANITIZE=ON -DPython_EXECUTABLE="$python"
cmake --build "$scratch/build" --parallel

# The package with this extension in place of the checkout's own.
rm -rf "$scratch/src"
mkdir "$scratch/src"
cp -r src/relive "$scratch/src"
rm -f "$scratch"/src/relive/_native.*.so
cp "$scratch"/build/relive/_native*.so "$scratch/src/relive"

# An editable install puts the checkout in front of every path; without `site` it does not.
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
export PYTHONPATH="$scratch/src:$packages" PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1
export RELIVE_KERNELS=native RELIVE_EXAMPLES=${RELIVE_EXAMPLES:-20}
# The interpreter leaks by design. The C++ library has to be there before the first exception is thrown.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
preload=$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libubsan.so)
preload+=:$("$compiler" -print-file-name=libstdc++.so)

unit=(border kernels kernels_of_files queue sum_tree_api tree_follows_ring)
tests=(tests/contract tests/property tests/threads)
for name in "${unit[@]}"; do tests+=("tests/unit/test_$name.py"); done
[[ $# -gt 0 ]] && tests=("$@")
LD_PRELOAD=$preload "$python" -S -m pytest -q -p no:cacheprovider "${tests[@]}"
