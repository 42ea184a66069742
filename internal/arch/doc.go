// SPDX-License-Identifier: Apache-2.0

// Package arch holds the code base to its own plan: which package may import which, what pure code must not touch, and what
// every file begins with. It has tests only. They look at direct imports as they are written, and at the product's whole set
// of dependencies where it is about what must never be linked.
package arch
