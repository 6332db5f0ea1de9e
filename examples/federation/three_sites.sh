#!/usr/bin/env bash
# A real federation on one machine: a graph is divided among three "hospitals", each trains in processes of its own,
# over mutual TLS, and ends with a personal model that classifies its nodes.
#
#   examples/federation/three_sites.sh [FOLDER] [PORT]
#
# Takes about a minute. Needs: pip install 'fedgkd[federation]'
set -euo pipefail
work=${1:-$(mktemp -d)}
port=${2:-8002}
sites=(hospital-a hospital-b hospital-c)

# Whatever happens, no process stays behind.
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT

# In real life every hospital has a graph of its own.
fedgkd partition synthetic --synthetic num_nodes=900 --clients 3 --out "$work/graphs"

# Once, by whoever sets the federation up: certificates and a kit for every party.
fedgkd federation init --name demo --sites "${sites[@]}" --host localhost --port "$port" --out "$work/kits" \
  --like "$work/graphs/client-0.npz" --algorithm fedgkd --rounds 10 --min-sites 3 --deadline 60 --set hidden=32

# The coordinator, which needs a moment to come up.
fedgkd federation serve --kit "$work/kits/coordinator" &
until fedgkd federation status --kit "$work/kits/admin"; do sleep 1; done

# At every site: is all as it should be? Then join.
for number in 0 1 2; do
  (
    kit="$work/kits/${sites[$number]}" graph="$work/graphs/client-$number.npz"
    fedgkd federation check --kit "$kit" --graph "$graph"
    exec fedgkd federation join --kit "$kit" --graph "$graph" --threads 1
  ) &
done

# The admin starts the training, which waits for the sites, and watches it to the end.
fedgkd federation start --kit "$work/kits/admin"
fedgkd federation status --kit "$work/kits/admin"

# Every site has its own model.
for number in 0 1 2; do
  fedgkd predict --model "$work/kits/${sites[$number]}/run/model.safetensors" \
    --graph "$work/graphs/client-$number.npz" --out "$work/${sites[$number]}.csv"
done
echo "all files: $work"
