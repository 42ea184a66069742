// SPDX-License-Identifier: Apache-2.0

//go:build linux

package spawner

const sysArchPrctl = 158
