# SPDX-License-Identifier: Apache-2.0
# Every target works from a clean clone. The first build compiles Kubernetes and takes about ten minutes on two cores; later
# ones take seconds. `make help` lists the targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash

demo: build ## build, start a plane of its own, run the examples, show what came of them
	@hack/demo.sh

test: ## everything that proves the product: unit tests with the race detector, then the real binary
	@hack/test.sh

build: ## bin/drover and bin/drover-controller
	@hack/build.sh ./cmd/drover ./cmd/drover-controller

unit: ## tests that need no binary, with the race detector
	@hack/test.sh unit

integration: build ## the built binary as a child process
	@hack/test.sh integration

e2e: build ## the binary as a user drives it
	@hack/test.sh e2e

upstream-e2e: build ## Kubernetes' own Job and CronJob specs against `drover up`
	@hack/upstream-e2e.sh

differential: ## the same histories with upstream's controllers and with ours, compared
	@hack/differential.sh

bench: build ## figures of the plane, and of our Job controller beside upstream's
	@hack/bench.sh

fuzz: ## a minute of random histories and inputs for each target
	@hack/fuzz.sh

lint: ## vet, the linters of .golangci.yml, and formatting
	@hack/lint.sh

generate: ## write generated files anew
	@go generate ./...

verify: ## fail if a generated file, the module file or the formatting is stale
	@hack/verify.sh

clean: ## remove what was built
	@rm -rf bin dist

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo test build unit integration e2e upstream-e2e differential bench fuzz lint generate verify clean help
