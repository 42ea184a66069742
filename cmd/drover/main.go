package main

import _ "github.com/drover-dev/drover/internal/controlplane"

func main() {}
