# Each target is one line: what it does lives in the tool it calls. `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
export PYTHONUNBUFFERED := 1

.PHONY: help env env-engine demo demo-down test test-fast check generate lock cluster cluster-down images conformance bench
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

env: ## the development environment in .venv
	@python3 e2e/bootstrap.py

env-engine: env ## the environment with vLLM (CPU), LMCache and the model, in the cache
	@$(PY) -m e2e.engine all

demo: env ## the main job from nothing: node, images, operator, two vLLM pods, one shared cache
	@$(PY) -m e2e.demo up --cluster "$(or $(CLUSTER),local)" --image-registry "$(IMAGE_REGISTRY)"

demo-down: env ## remove exactly what `make demo` made in the cluster, and the node if it started it
	@$(PY) -m e2e.demo down

test: env ## all tests from nothing, unit to cluster
	@$(PY) -m e2e.testing all

test-fast: env ## the tests that need neither cluster nor vLLM
	@$(PY) -m e2e.testing fast

check: env ## lint, types, layers, generated files
	@$(PY) -m e2e.testing check

generate: env ## rewrite the generated files (CRD, chart schema, table of settings, page of models)
	@$(PY) -m e2e.testing generate

lock: env ## resolve the lock files again
	@$(PY) -m e2e.testing lock

cluster: env ## a local Kubernetes node; kubeconfig in .local/cluster/kubeconfig
	@$(PY) -m e2e.cluster up

cluster-down: env ## stop the local node and remove what it left
	@$(PY) -m e2e.cluster down

images: env ## OCI archives under .local/images
	@$(PY) -m e2e.images build

conformance: env ## the Couchbase conformance suite (COUCHBASE_URL, COUCHBASE_USERNAME, COUCHBASE_PASSWORD for a real one)
	@$(PY) -m pytest e2e/conformance

bench: env ## the speed of the L2 adapter, of the device backend and of the emulator; tables, plots and figures in .local/bench
	@benchmarks/l2/run && benchmarks/device/run && $(PY) -m benchmarks.emulator.throughput --json .local/bench/emulator.json
