// SPDX-License-Identifier: Apache-2.0

// Package suggest finds what a mistyped word may have meant. It is pure.
package suggest

import (
	"cmp"
	"slices"
	"strings"
)

// most is how many suggestions are worth a reader's time.
const most = 3

// Near returns up to three candidates that word may have meant, the nearest first: those that differ in about a third of
// the letters at most, or that begin with word. Case does not matter. It returns nil if nothing is near.
func Near(word string, candidates []string) []string {
	type near struct {
		name string
		far  int
	}
	var found []near
	lower := strings.ToLower(word)
	farthest := min(max(1, len(word)/3), len(word)-1) // a single letter is near to no other
	for _, c := range candidates {
		far := distance(lower, strings.ToLower(c))
		begins := len(word) >= 2 && strings.HasPrefix(strings.ToLower(c), lower)
		if far <= farthest || begins {
			found = append(found, near{c, far})
		}
	}
	slices.SortFunc(found, func(a, b near) int { return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name)) })
	var names []string
	for _, f := range found[:min(most, len(found))] {
		names = append(names, f.name)
	}
	return names
}

// distance returns how many letters must be inserted, deleted, replaced, or swapped with their neighbour to turn a into b
// (optimal string alignment), counted in bytes: names of objects are ASCII.
func distance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(next[j-1]+1, row[j]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
