// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/node/downward"
)

type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
}

func (o objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if data, ok := o.configMaps[name]; ok {
		return &corev1.ConfigMap{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (o objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	if data, ok := o.secrets[name]; ok {
		return &corev1.Secret{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

var source = objects{
	configMaps: map[string]map[string]string{"cm": {"A": "from-cm", "B": "b"}},
	secrets:    map[string]map[string][]byte{"sec": {"A": []byte("from-secret"), "PASS": []byte("s3cret")}},
}

func TestBuild(t *testing.T) {
	yes := true
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("KEY='from file'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		from []corev1.EnvFromSource
		vars []corev1.EnvVar
		want []string // nil with err
		err  string
	}{
		"a variable refers to those before it": {
			vars: []corev1.EnvVar{{Name: "X", Value: "1"}, {Name: "Y", Value: "$(X)2 $(LATER) $$(X)"}, {Name: "LATER", Value: "l"}},
			want: []string{"PATH=/bin", "SVC=10.0.0.1", "X=1", "Y=12 $(LATER) $(X)", "LATER=l"},
		},
		"a variable refers to service variables": {
			vars: []corev1.EnvVar{{Name: "X", Value: "http://$(SVC)"}},
			want: []string{"PATH=/bin", "SVC=10.0.0.1", "X=http://10.0.0.1"},
		},
		"the container goes before the image and the services": {
			vars: []corev1.EnvVar{{Name: "PATH", Value: "/mine"}, {Name: "SVC", Value: ""}},
			want: []string{"PATH=/mine", "SVC="},
		},
		"whole objects come with a prefix, later ones win, single variables win over them": {
			from: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("cm")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("sec")}},
				{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("cm")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none"), Optional: &yes}},
			},
			vars: []corev1.EnvVar{{Name: "B", Value: "mine $(A)"}},
			want: []string{"PATH=/bin", "SVC=10.0.0.1", "A=from-secret", "B=mine from-secret", "PASS=s3cret", "P_A=from-cm", "P_B=b"},
		},
		"single keys": {
			vars: []corev1.EnvVar{
				{Name: "C", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("cm"), Key: "A"}}},
				{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("sec"), Key: "PASS"}}},
				{Name: "F", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: "env", Key: "KEY"}}},
				{Name: "N", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				{Name: "L", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
			},
			want: []string{"PATH=/bin", "SVC=10.0.0.1", "C=from-cm", "S=s3cret", "F=from file", "N=p", "L=64"},
		},
		"what is optional and missing is left out": {
			vars: []corev1.EnvVar{
				{Name: "C", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("none"), Key: "A", Optional: &yes}}},
				{Name: "K", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("sec"), Key: "none", Optional: &yes}}},
			},
			want: []string{"PATH=/bin", "SVC=10.0.0.1"},
		},
		"a missing ConfigMap": {
			from: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("none")}}},
			err:  `configmaps "none" not found`,
		},
		"a missing key": {
			vars: []corev1.EnvVar{{Name: "C", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("cm"), Key: "Z"}}}},
			err:  "couldn't find key Z in ConfigMap ns/cm",
		},
		"a NUL byte cannot be passed on": {
			vars: []corev1.EnvVar{{Name: "C", Value: "a\x00b"}},
			err:  `environment variable "C" contains a NUL byte`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &corev1.Container{Name: "c", EnvFrom: tc.from, Env: tc.vars}
			c.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
			e, err := Build(context.Background(), Input{
				Container:  c,
				Values:     downward.Values{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}},
				Base:       []string{"PATH=/bin"},
				Service:    map[string]string{"SVC": "10.0.0.1"},
				VolumeFile: func(string, string) (string, error) { return file, nil },
			}, source)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error = %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, e.List()); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	e := newEnv()
	e.set("A", "x")
	if diff := cmp.Diff([]string{"x-$(B)", "$(A)", "$A"}, e.Expand([]string{"$(A)-$(B)", "$$(A)", "$A"})); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	if got, err := e.ExpandStrict("d/$(A)"); got != "d/x" || err != nil {
		t.Errorf("ExpandStrict = %q, %v", got, err)
	}
	if _, err := e.ExpandStrict("$(B)"); err == nil || err.Error() != `missing value for "B"` {
		t.Errorf("ExpandStrict of an unset name: %v", err)
	}
}
