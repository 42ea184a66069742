// SPDX-License-Identifier: Apache-2.0

// Package controller carries out what the pure packages decide: informers tell it what is, it asks the kind's package for a
// plan, sends the writes, and tells the kind's ledger what came of them.
//
// It decides nothing about workloads itself. What it adds is how to talk to an API server well: no write that earns nothing,
// bounded parallelism, slow start where a first failure tells that more would fail, and no guess about a write whose answer
// was lost.
//
// Start reading at JobController.
package controller
