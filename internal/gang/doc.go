// SPDX-License-Identifier: Apache-2.0

// Package gang plays the part of Volcano's scheduler that comes before and after the placing of pods: which PodGroups their queues
// have room for, and what is told of each PodGroup in its status. Where pods go is kube-scheduler's to decide.
//
// A queue has room for what is within its own capability and those of all queues above it. PodGroups are admitted by the priority
// of their queue, then their own, then their age. One that must wait keeps its place: what it needs is held for it, so that those
// behind it pass only where they cannot keep it waiting any longer. So nothing starves behind smaller PodGroups, and what nobody in
// front can use does not lie idle.
//
// The package knows no client, clock or logger. Start reading at Admit, then Status.
package gang
