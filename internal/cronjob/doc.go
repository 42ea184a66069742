// SPDX-License-Identifier: Apache-2.0

// Package cronjob decides what a CronJob needs next, of whatever kind it is. It is pure: data in, plan out; it knows no client,
// clock, logger or metric. What is particular to a kind stands in one file, such as batch.go, which turns its objects into this
// package's terms and back.
//
// A controller keeps, for each CronJob, the newest version it knows, the Rules that Read has made of it, and a Memory. A sync is
//
//	Decide(o)            what to check, replace, start and tidy up  → the controller acts, in that order
//	Account(o, plan, …)  what came of it: the next Memory, events, when to wake
//	Memory.Record(c)     what must be stored, and how soon          → one write to /status, coalesced
//
// A due time fires from memory. Plan.Wake goes into one queue ordered by time; when it comes, Decide needs no list and no get, and
// the first request is the creation of the Job. The status follows: until it is stored, Memory holds the difference as Changes,
// which can be applied to any later version of the CronJob, so that neither a conflict nor a stale cache undoes a decision.
// Between a start and the write only the Job itself bears witness that its due time is done; therefore Jobs of which the status
// does not know yet are adopted when they are seen, and never deleted.
//
// What a controller must keep to:
//
//   - The versions of a CronJob that it passes to Decide never go back: the answer to a write of its own counts as the newest
//     version until the cache has caught up.
//   - Account is called for every plan, and decisions for one CronJob never overlap.
//   - Decide is called when the CronJob is added or changed by others, when a Job of its own is added, changed or deleted in the
//     cache, at Accounting.Wake, and after a write when Plan.AfterStore asks for it. Not otherwise: after an edit of the schedule
//     the next call of any cause may start a due time of before, as upstream does.
//   - Awake is set anew whenever the process could not have noticed a due time: at its start, when the machine has slept, and
//     when the clock was set forward.
//   - When the clock is set, in whatever direction, every CronJob is decided again.
//   - Starts go out before anything else at a minute's edge; Tidy and the write can wait.
//
// Every due time ends up in the Ledger with an outcome; see there for what it costs and where it is kept.
//
// Start reading at Decide. Source of the behaviour: Kubernetes v1.37 CronJob controller, as its API shows it; every deliberate
// difference is marked "Differs:" and listed in docs/differences.md.
package cronjob
