#!/usr/bin/env bash
# Builds with sanitizers in a scratch folder, and runs the tests that call the extension most on these builds:
#
# * ThreadSanitizer: writers and readers of one ring as threads (tests/native/races.cpp), the lock of a buffer where the
#   interpreter has none (tests/native/lock.cpp), and the threads' tests;
# * AddressSanitizer and UndefinedBehaviorSanitizer: what is listed below, on 20 examples a property.
#
# Nothing is suppressed. Left out are what uses JAX, which has races of its own, and what measures the memory of dropped
# batches, which a sanitizer keeps. Leaves this checkout as it is. Needs GCC or Clang, CMake and nanobind.
#
#     bash tests/sanitizers.sh
#     bash tests/sanitizers.sh thread               # one of both: `thread` or `address`
#     RELIVE_EXAMPLES=500 bash tests/sanitizers.sh address tests/buffer
#
# PYTHON names the interpreter (python3 otherwise), RELIVE_SCRATCH a folder that is kept and built in again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(command -v "${PYTHON:-python3}")
compiler=${CXX:-c++}
kinds=(thread address)
if [[ ${1:-} == thread || ${1:-} == address ]]; then
    kinds=("$1")
    shift
fi

scratch=${RELIVE_SCRATCH:-}
if [[ -z $scratch ]]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
fi
mkdir -p "$scratch"
# An editable install puts the checkout in front of every path; without `site` it does not.
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
export PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 RELIVE_KERNELS=native RELIVE_EXAMPLES=${RELIVE_EXAMPLES:-20}
# The interpreter leaks by design.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS="halt_on_error=1 log_path=$scratch/report"

# built KIND FLAGS: the extension, and the package with it in place of the checkout's own.
built() {
    cmake -S . -B "$scratch/$1" -DCMAKE_BUILD_TYPE=Debug -DRELIVE_SANITIZE="$2" -DPython_EXECUTABLE="$python"
    cmake --build "$scratch/$1" --parallel
    rm -rf "$scratch/$1/src"
    mkdir "$scratch/$1/src"
    cp -r src/relive "$scratch/$1/src"
    rm -f "$scratch/$1"/src/relive/_ring/_native.*.so
    cp "$scratch/$1"/relive/_native*.so "$scratch/$1/src/relive/_ring"
}

# tested KIND LIBRARIES TESTS...: the C++ library has to be there before the first exception is thrown.
tested() {
    local preload=""
    for library in $2 stdc++; do preload+=$("$compiler" -print-file-name="lib$library.so"):; done
    PYTHONPATH="$scratch/$1/src:$packages" LD_PRELOAD=${preload%:} \
        "$python" -S -m pytest -q -p no:cacheprovider -k "not jax" --ignore tests/buffer/test_memory_of_batches.py "${@:3}" ||
        { cat "$scratch"/report* >&2; return 1; }  # pytest keeps what is written while a test runs
}

threads=(tests/buffer/test_threads.py tests/checkpoints/test_add_during_save.py tests/flow)
for kind in "${kinds[@]}"; do
    if [[ $kind == thread ]]; then
        "$compiler" -std=c++20 -O1 -g -fsanitize=thread -DRELIVE_ATOMIC_COPIES -Wno-tsan -o "$scratch/races" tests/native/races.cpp
        "$scratch/races" 10
        if "$scratch/races" 5 unchecked; then
            echo "races: no row is torn without the second look, so its absence would not be found" >&2
            exit 1
        fi
        headers=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
        nanobind=$("$python" -c 'import nanobind; print(nanobind.include_dir())')
        "$compiler" -std=c++20 -O1 -g -fsanitize=thread -ffunction-sections -fdata-sections -Wl,--gc-sections \
            -isystem "$headers" -isystem "$nanobind" -o "$scratch/lock" tests/native/lock.cpp
        "$scratch/lock" 5
        built thread thread
        tests=("${threads[@]}")
        [[ $# -gt 0 ]] && tests=("$@")
        tested thread tsan "${tests[@]}"
    else
        built address address,undefined
        ring=(border kernels kernels_agree kernels_of_files queue tree_follows_ring)
        tests=(tests/{buffer,checkpoints,flow,items,processes,storage} tests/samplers/test_{samplers,sum_tree}.py)
        for name in "${ring[@]}"; do tests+=("tests/ring/test_$name.py"); done
        [[ $# -gt 0 ]] && tests=("$@")
        tested address "asan ubsan" "${tests[@]}"
    fi
done
