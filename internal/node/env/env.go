// SPDX-License-Identifier: Apache-2.0

// Package env builds the environment of a container from everything that a pod can say about it.
//
// It reads ConfigMaps and Secrets through Source and knows no client. Start reading at Build.
package env

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	envfile "k8s.io/kubernetes/pkg/kubelet/util/env"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/drover-dev/drover/internal/node/downward"
)

// Source returns objects of the pod's namespace. A missing object is an error that apierrors.IsNotFound knows.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Input is what the environment of one container is made of.
type Input struct {
	Container *corev1.Container
	Values    downward.Values
	// Base has "NAME=value" lines that everything else goes before: the image's environment and the node's own.
	Base []string
	// Service variables can be referred to as $(NAME), and are there unless the container sets the same name.
	Service map[string]string
	// VolumeFile returns where the file at path of a volume lies on the host, never outside the volume.
	VolumeFile func(volume, path string) (string, error)
}

// Env is an environment: names in the order in which they were first set.
type Env struct {
	names  []string
	values map[string]string
}

// Build returns the environment of a container. A missing object or key that is not optional is an error in kubelet's words.
func Build(ctx context.Context, in Input, src Source) (*Env, error) {
	b := &builder{in: in, src: src, own: newEnv(), configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}}
	if err := b.fromSources(ctx); err != nil {
		return nil, err
	}
	if err := b.fromVars(ctx); err != nil {
		return nil, err
	}
	e := newEnv()
	for _, line := range in.Base {
		name, value, _ := strings.Cut(line, "=")
		e.set(name, value)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Service)) {
		e.set(name, in.Service[name])
	}
	for _, name := range b.own.names {
		e.set(name, b.own.values[name])
	}
	for _, name := range e.names {
		if strings.ContainsRune(name, 0) || strings.ContainsRune(e.values[name], 0) {
			return nil, fmt.Errorf("environment variable %q contains a NUL byte", strings.ReplaceAll(name, "\x00", "\\0"))
		}
	}
	return e, nil
}

// List returns the environment as "NAME=value" lines.
func (e *Env) List() []string {
	list := make([]string, 0, len(e.names))
	for _, name := range e.names {
		list = append(list, name+"="+e.values[name])
	}
	return list
}

// Lookup returns the value of a variable and whether it is set.
func (e *Env) Lookup(name string) (string, bool) {
	v, ok := e.values[name]
	return v, ok
}

// Default sets a variable that is not set.
func (e *Env) Default(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.set(name, value)
	}
}

// Expand replaces $(NAME) in each of list, as in a container's command and args. $$(NAME) stays as $(NAME), and a name that is not
// set stays as it stands.
func (e *Env) Expand(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	mapping := expansion.MappingFuncFor(e.values)
	expanded := make([]string, len(list))
	for i, s := range list {
		expanded[i] = expansion.Expand(s, mapping)
	}
	return expanded
}

// ExpandStrict is Expand for one text in which every name must be set, as in a subPathExpr.
func (e *Env) ExpandStrict(s string) (string, error) {
	var missing error
	expanded := expansion.Expand(s, func(name string) string {
		value, ok := e.values[name]
		if !ok && missing == nil {
			missing = fmt.Errorf("missing value for %q", name)
		}
		return value
	})
	return expanded, missing
}

func newEnv() *Env { return &Env{values: map[string]string{}} }

func (e *Env) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

type builder struct {
	in         Input
	src        Source
	own        *Env
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

func (b *builder) fromSources(ctx context.Context) error {
	for _, from := range b.in.Container.EnvFrom {
		data := map[string]string{}
		switch {
		case from.ConfigMapRef != nil:
			cm, err := b.configMap(ctx, from.ConfigMapRef.Name, isTrue(from.ConfigMapRef.Optional))
			if err != nil {
				return err
			}
			if cm != nil {
				data = cm.Data
			}
		case from.SecretRef != nil:
			secret, err := b.secret(ctx, from.SecretRef.Name, isTrue(from.SecretRef.Optional))
			if err != nil {
				return err
			}
			if secret != nil {
				for k, v := range secret.Data {
					data[k] = string(v)
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			b.own.set(from.Prefix+key, data[key])
		}
	}
	return nil
}

func (b *builder) fromVars(ctx context.Context) error {
	mapping := expansion.MappingFuncFor(b.own.values, b.in.Service)
	for i := range b.in.Container.Env {
		v := &b.in.Container.Env[i]
		value, set, err := v.Value, true, error(nil)
		switch {
		case v.Value != "":
			value = expansion.Expand(v.Value, mapping)
		case v.ValueFrom != nil:
			value, set, err = b.valueFrom(ctx, v.ValueFrom)
		}
		if err != nil {
			return err
		}
		if set {
			b.own.set(v.Name, value)
		}
	}
	return nil
}

// valueFrom returns the value of a source, and false for an optional one that is not there.
func (b *builder) valueFrom(ctx context.Context, s *corev1.EnvVarSource) (string, bool, error) {
	switch {
	case s.FieldRef != nil:
		value, err := b.in.Values.Field(s.FieldRef.FieldPath)
		return value, true, err
	case s.ResourceFieldRef != nil:
		value, err := b.in.Values.Resource(s.ResourceFieldRef, b.in.Container)
		return value, true, err
	case s.ConfigMapKeyRef != nil:
		ref := s.ConfigMapKeyRef
		cm, err := b.configMap(ctx, ref.Name, isTrue(ref.Optional))
		if err != nil || cm == nil {
			return "", false, err
		}
		value, ok := cm.Data[ref.Key]
		if !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, b.namespace(), ref.Name)
		}
		return value, ok, nil
	case s.SecretKeyRef != nil:
		ref := s.SecretKeyRef
		secret, err := b.secret(ctx, ref.Name, isTrue(ref.Optional))
		if err != nil || secret == nil {
			return "", false, err
		}
		value, ok := secret.Data[ref.Key]
		if !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, b.namespace(), ref.Name)
		}
		return string(value), ok, nil
	case s.FileKeyRef != nil:
		return b.fileKey(s.FileKeyRef)
	}
	return "", true, nil
}

func (b *builder) fileKey(ref *corev1.FileKeySelector) (string, bool, error) {
	if b.in.VolumeFile == nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	file, err := b.in.VolumeFile(ref.VolumeName, ref.Path)
	if err != nil {
		return "", false, err
	}
	value, err := envfile.ParseEnv(file, ref.Key)
	switch {
	case err != nil && isTrue(ref.Optional):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("couldn't parse env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	case value == "" && isTrue(ref.Optional):
		return "", false, nil
	case value == "":
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, true, nil
}

func (b *builder) configMap(ctx context.Context, name string, optional bool) (*corev1.ConfigMap, error) {
	if cm, ok := b.configMaps[name]; ok {
		return cm, nil
	}
	cm, err := b.src.ConfigMap(ctx, b.namespace(), name)
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	b.configMaps[name] = cm
	return cm, nil
}

func (b *builder) secret(ctx context.Context, name string, optional bool) (*corev1.Secret, error) {
	if s, ok := b.secrets[name]; ok {
		return s, nil
	}
	s, err := b.src.Secret(ctx, b.namespace(), name)
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	b.secrets[name] = s
	return s, nil
}

func unlessOptional(err error, optional bool) error {
	if optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (b *builder) namespace() string { return b.in.Values.Pod.Namespace }

func isTrue(b *bool) bool { return b != nil && *b }
