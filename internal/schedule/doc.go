// SPDX-License-Identifier: Apache-2.0

// Package schedule reads cron expressions and does the arithmetic of due times: the next one, the latest one, how many lie in a
// window. It reads no clock and loads no zone files; instants and zones are given in.
//
// An expression means exactly what it means to the built-in CronJob controller, whose parser is robfig/cron v3.0.1, odd corners
// included, and so do the instants that follow from it, in every zone and around every change of its clocks. That arithmetic
// walks the local clock forward and has memory: near a change of the clocks the due times that it finds depend on where it
// starts. Due times are therefore always a chain, start → Next → Next …, and Between sums up such a chain without walking
// every link. The modes Once, Skip and Both (see DST) are plain sets of instants instead.
//
// Start reading at Schedule.
package schedule
