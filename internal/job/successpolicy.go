// SPDX-License-Identifier: Apache-2.0

package job

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/drover-dev/drover/internal/indexset"
)

// successRule returns the position of the first rule of the policy that the succeeded indexes satisfy, or -1. A rule whose
// list of indexes is empty or malformed is never satisfied.
func successRule(policy *batchv1.SuccessPolicy, succeeded *indexset.Set) int {
	if policy == nil || succeeded.Len() == 0 {
		return -1
	}
	for n := range policy.Rules {
		if satisfies(&policy.Rules[n], succeeded) {
			return n
		}
	}
	return -1
}

func satisfies(rule *batchv1.SuccessPolicyRule, succeeded *indexset.Set) bool {
	if rule.SucceededIndexes == nil {
		return rule.SucceededCount != nil && succeeded.Len() >= int(*rule.SucceededCount)
	}
	wanted, ok := indexset.ParseStrict(*rule.SucceededIndexes)
	if !ok || wanted.Len() == 0 {
		return false
	}
	need := wanted.Len()
	if rule.SucceededCount != nil {
		need = min(need, int(*rule.SucceededCount))
	}
	return succeeded.CountIn(&wanted) >= need
}
