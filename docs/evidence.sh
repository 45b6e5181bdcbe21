#!/usr/bin/env bash
# Every comparison of docs/evidence.md, one after the other, with the same seeds: `bash docs/evidence.sh [FOLDER]`.
# Hours on two cores; evidence.md has the durations. A comparison whose summary.json exists is not run again.
set -euo pipefail
folder=${1:-runs/evidence}

compare() {
    local name=$1
    shift
    [[ -e $folder/$name/summary.json ]] || relive compare "$@" --out "$folder/$name"
}

compare cliffwalk cliffwalk
compare tmaze tmaze
compare pendulum pendulum --seeds 10 --first-seed 6400 --arms uniform td precision
compare break pairs --seeds 30 --first-seed 6000 --arms uniform td precision
compare cost pairs --cost 1.5 --seeds 30 --first-seed 6100 --arms uniform td precision
compare dislocation pairs --mode dislocation --loss huber --seeds 30 --first-seed 6300 --arms uniform td
