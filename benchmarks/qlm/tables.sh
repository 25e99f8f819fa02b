#!/usr/bin/env bash
# Measures what stands in the tables of docs/performance.md that come out of the simulator, each as FOLDER/TABLE.json.
#
#   benchmarks/qlm/tables.sh FOLDER SEEDS JOBS             all of them, one after another
#   benchmarks/qlm/tables.sh FOLDER SEEDS JOBS wa2 wc2     these
#
# SEEDS are numbers with commas between them, drawn anew for the commit that is measured and used for nothing else:
#
#   python -c 'import secrets; print(*sorted(secrets.randbelow(10**6) for _ in range(10)), sep=",")'
#
# JOBS are simulations side by side; one of 3,000 requests takes 15 to 25 s of a core, so each of the first three tables
# a quarter of an hour of one. Rows are kept in FOLDER/rows: what was stopped goes on, and what the same code has
# measured is not measured again. So the code has to be committed. PYTHON names another interpreter.
# `python benchmarks/qlm/tables.py FOLDER` makes the tables out of the results.
set -euo pipefail
usage="usage: benchmarks/qlm/tables.sh FOLDER SEEDS JOBS [TABLE...]"
folder=${1:?$usage} seeds=${2:?$usage} jobs=${3:?$usage}
shift 3
here=$(dirname "$0")
few=qlm,edf,edf-affine,shepherd   # the strongest, with all operations, where a run takes a quarter of a minute

declare -A tables=(
    [wb2]="attainment.py --workload wb --devices a100=2 --rates 4,12 --requests 600 --seeds $seeds --jobs $jobs"
    [wa8]="attainment.py --workload wa --devices a100=4,a10=4 --rates 60 --requests 800 --seeds $seeds --jobs $jobs"
    [wa2]="attainment.py --workload wa --devices a100=1,a10=1 --rates 20,30 --requests 600 --seeds $seeds --jobs $jobs"
    [wa1]="attainment.py --workload wa --devices a100=1 --rates 60 --requests 600 --seeds $seeds --jobs $jobs"
    [wc2]="attainment.py --workload wc --devices a100=1,a10=1 --rates 17 --requests 600 --seeds $seeds --jobs $jobs"
    [wa10]="attainment.py --workload wa --devices a100=6,a10=4 --rates 127 --requests 3000 --policies $few --seeds $seeds --jobs $jobs"
    [wb10]="attainment.py --workload wb --devices a100=6,a10=4 --rates 27 --requests 3000 --policies $few --seeds $seeds --jobs $jobs"
    [wc10]="attainment.py --workload wc --devices a100=6,a10=4 --rates 84 --requests 3000 --policies $few --seeds $seeds --jobs $jobs"
    [rates]="attainment.py --seeds $seeds --jobs $jobs"
    [eighty]="attainment.py --devices a100=50,a10=30 --requests 24000"
    [hour]="attainment.py --workload wb --devices a100=50,a10=30 --rates 66 --requests 237600 --policies qlm"
    [ablation]="ablation.py --seeds $seeds"
    [predictions]="prediction_ablation.py --seeds 0,1,2 --jobs $jobs"
    [devices]="devices_needed.py --workload wa --rate 60 --requests 1000 --trials 3"
)
order=(wb10 wa10 wc10 wa2 wc2 wb2 wa1 wa8)   # the headline; name the others where there are hours

mkdir -p "$folder"
for table in "${@:-${order[@]}}"; do
    [ -n "${tables[$table]:-}" ] || { echo "no table $table; there are ${!tables[*]}" >&2; exit 2; }
    echo "$table: ${tables[$table]}" >&2
    # shellcheck disable=SC2086 # options, one a word
    "${PYTHON:-python}" "$here"/${tables[$table]} --rows "$folder/rows" --json > "$folder/$table.part"
    mv "$folder/$table.part" "$folder/$table.json"
done
