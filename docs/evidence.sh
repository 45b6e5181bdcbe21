#!/usr/bin/env bash
# Every comparison of docs/evidence.md, one after the other, with the same seeds: `bash docs/evidence.sh [FOLDER [NAME]]`,
# those alone whose names begin with NAME. It takes hours; evidence.md says how many. Comparisons that came to their end
# are not run again.
set -euo pipefail
folder=${1:-runs/evidence} only=${2:-}

compare() {
    local name=$1
    shift
    if [[ $name == "$only"* && ! -e $folder/$name/done ]]; then
        relive-lab compare "$@" --out "$folder/$name"
        touch "$folder/$name/done"
    fi
}

compare cliffwalk cliffwalk
compare tmaze tmaze
compare pendulum pendulum --seeds 10 --first-seed 6400 --arms uniform td precision
compare final-reach final-observations --first-seed 7000
compare final-n3 final-observations --n-step 3 --first-seed 7000
compare final-per final-observations --use-per --first-seed 7000
compare final-pendulum final-observations --env pendulum --first-seed 7000
compare break pairs --seeds 30 --first-seed 6000 --arms uniform td precision
compare cost pairs --cost 1.5 --seeds 30 --first-seed 6100 --arms uniform td precision
compare dislocation pairs --mode dislocation --loss huber --seeds 30 --first-seed 6300 --arms uniform td
for task in reach pairs pendulum pendulum-sac; do
    for volume in low high; do
        compare "recency/$task-$volume" recency --task "$task" --volume "$volume" --first-seed 9000
    done
done
if [[ -d $folder/recency ]]; then
    python -m relive_lab.studies.recency "$folder/recency" | tee "$folder/recency/table.md"
fi
