#!/usr/bin/env bash
# Makes the tables of docs/performance.md that come out of the simulator, each as FOLDER/TABLE.json.
#
#   benchmarks/qlm/tables.sh FOLDER             all of them, one after another: some hours on one core
#   benchmarks/qlm/tables.sh FOLDER wa8 wc2     these
#
# Rows are kept in FOLDER/rows: what was stopped goes on, and what the same code has measured is not measured again. So
# the code has to be committed. PYTHON names another interpreter.
set -euo pipefail
folder=${1:?usage: benchmarks/qlm/tables.sh FOLDER [TABLE...]}
shift
here=$(dirname "$0")
seeds=0,1,2

declare -A tables=(
    [wb2]="attainment.py --workload wb --devices a100=2 --rates 2,4,12 --requests 1500 --seeds $seeds"
    [wb4]="attainment.py --workload wb --devices a100=4 --rates 15 --requests 2500 --seeds $seeds"
    [wa8]="attainment.py --workload wa --devices a100=4,a10=4 --rates 30,60 --requests 3000 --seeds $seeds"
    [wa2]="attainment.py --workload wa --devices a100=1,a10=1 --rates 20,30 --requests 2000 --seeds $seeds"
    [wc2]="attainment.py --workload wc --devices a100=1,a10=1 --rates 17 --requests 1500 --seeds $seeds"
    [rates]="attainment.py --seeds $seeds"
    [eighty]="attainment.py --devices a100=50,a10=30 --requests 24000"
    [hour]="attainment.py --workload wb --devices a100=50,a10=30 --rates 66 --requests 237600 --policies qlm"
    [ablation]="ablation.py --seeds $seeds"
    [devices]="devices_needed.py --workload wa --rate 60 --requests 1000 --trials 3"
)
order=(wa8 wa2 wc2 wb4 wb2 ablation devices rates eighty hour)

mkdir -p "$folder"
for table in "${@:-${order[@]}}"; do
    [ -n "${tables[$table]:-}" ] || { echo "no table $table; there are ${order[*]}" >&2; exit 2; }
    echo "$table: ${tables[$table]}" >&2
    # shellcheck disable=SC2086 # options, one a word
    "${PYTHON:-python}" "$here"/${tables[$table]} --rows "$folder/rows" --json > "$folder/$table.part"
    mv "$folder/$table.part" "$folder/$table.json"
done
