// SPDX-License-Identifier: Apache-2.0

package integration

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var one = resource.MustParse("1")

func tokenRequest() *authenticationv1.TokenRequest { return &authenticationv1.TokenRequest{} }
