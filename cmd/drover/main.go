// SPDX-License-Identifier: Apache-2.0

package main

import _ "github.com/drover-dev/drover/internal/controlplane"

func main() {}
