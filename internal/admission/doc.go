// SPDX-License-Identifier: Apache-2.0

// Package admission serves the webhooks by which an API server asks whether an object may be stored, and with what filled in. It is
// thin: what is filled in and what is wrong is decided by each kind's Default and Validate. What it adds is the talk with the API
// server, certificates that it makes and renews itself, and the registration of the webhooks.
//
// Start reading at Server.
package admission
