// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/internal/node/downward"
)

// file is one file of a volume that mirrors API objects.
type file struct {
	data []byte
	mode int32
	uid  *int64 // owner; nil: whoever runs the node
}

// defaultTokenLifetime is what a token lives that says nothing else.
const defaultTokenLifetime = time.Hour

// payload returns the files of a volume that mirrors API objects, by path below the volume; ok is false for other kinds.
func (m *Manager) payload(ctx context.Context, values downward.Values, v *corev1.Volume, set *Set) (files map[string]file, ok bool, err error) {
	p := &payload{values: values, objects: m.objects, now: m.clock.Now, files: map[string]file{}, set: set}
	switch {
	case v.ConfigMap != nil:
		return p.files, true, p.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode, isTrue(v.ConfigMap.Optional))
	case v.Secret != nil:
		return p.files, true, p.secret(ctx, v.Secret.SecretName, v.Secret.Items, v.Secret.DefaultMode, isTrue(v.Secret.Optional))
	case v.DownwardAPI != nil:
		return p.files, true, p.downward(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		return p.files, true, p.projected(ctx, v.Projected)
	}
	return nil, false, nil
}

type payload struct {
	values  downward.Values
	objects Objects
	now     func() time.Time
	files   map[string]file
	set     *Set
}

func (p *payload) projected(ctx context.Context, source *corev1.ProjectedVolumeSource) error {
	for _, s := range source.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = p.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Items, source.DefaultMode, isTrue(s.ConfigMap.Optional))
		case s.Secret != nil:
			err = p.secret(ctx, s.Secret.Name, s.Secret.Items, source.DefaultMode, isTrue(s.Secret.Optional))
		case s.DownwardAPI != nil:
			err = p.downward(s.DownwardAPI.Items, source.DefaultMode)
		case s.ServiceAccountToken != nil:
			err = p.token(ctx, s.ServiceAccountToken, source.DefaultMode)
		default:
			err = fmt.Errorf("a projected source other than configMap, secret, downwardAPI and serviceAccountToken is %w", ErrUnsupported)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *payload) configMap(ctx context.Context, name string, items []corev1.KeyToPath, mode *int32, optional bool) error {
	cm, err := p.objects.ConfigMap(ctx, p.values.Pod.Namespace, name)
	if err != nil {
		if optional && apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return p.keys("config", name, data, items, mode, optional)
}

func (p *payload) secret(ctx context.Context, name string, items []corev1.KeyToPath, mode *int32, optional bool) error {
	secret, err := p.objects.Secret(ctx, p.values.Pod.Namespace, name)
	if err != nil {
		if optional && apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return p.keys("secret", name, secret.Data, items, mode, optional)
}

// keys adds the keys of an object: all of them, or those that items pick.
func (p *payload) keys(kind, name string, data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional bool) error {
	if len(items) == 0 {
		for key, value := range data {
			p.files[key] = file{data: value, mode: modeOr(mode, 0o644)}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("references non-existent %s key: %s", kind, item.Key)
		}
		if err := p.add(item.Path, file{data: value, mode: modeOr(item.Mode, modeOr(mode, 0o644))}); err != nil {
			return fmt.Errorf("%s %q: %w", kind, name, err)
		}
	}
	return nil
}

func (p *payload) downward(items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = p.values.Field(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = p.values.Resource(item.ResourceFieldRef, nil)
		}
		if err != nil {
			return err
		}
		if err := p.add(item.Path, file{data: []byte(value), mode: modeOr(item.Mode, modeOr(mode, 0o644))}); err != nil {
			return err
		}
	}
	return nil
}

func (p *payload) token(ctx context.Context, source *corev1.ServiceAccountTokenProjection, mode *int32) error {
	lifetime := defaultTokenLifetime
	if source.ExpirationSeconds != nil {
		lifetime = time.Duration(*source.ExpirationSeconds) * time.Second
	}
	pod := p.values.Pod
	t, err := p.freshToken(ctx, source.Audience, lifetime)
	if err != nil {
		return err
	}
	f := file{data: t.text, mode: modeOr(mode, 0o644)}
	f.uid = fileOwner(pod)
	if f.uid != nil || pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.FSGroup != nil {
		f.mode = 0o600
	}
	return p.add(source.Path, f)
}

// tokenKey tells tokens of one pod apart.
type tokenKey struct {
	audience string
	lifetime time.Duration
}

type token struct {
	text    []byte
	refresh time.Time
}

// freshToken returns a token that is not due for a refresh, the one that is there already if possible.
func (p *payload) freshToken(ctx context.Context, audience string, lifetime time.Duration) (token, error) {
	key := tokenKey{audience, lifetime}
	t, ok := p.set.tokens[key]
	if !ok || !p.now().Before(t.refresh) {
		request, err := p.objects.Token(ctx, p.values.Pod, audience, lifetime)
		if err != nil {
			return token{}, err
		}
		t = token{[]byte(request.Status.Token), refreshTime(p.now(), request.Status.ExpirationTimestamp.Time)}
		p.set.tokens[key] = t
	}
	if p.set.Refresh.IsZero() || t.refresh.Before(p.set.Refresh) {
		p.set.Refresh = t.refresh
	}
	return t, nil
}

// refreshTime returns when a token that was made now is replaced: when four fifths of its life are over, and at least daily.
func refreshTime(now, expires time.Time) time.Time {
	life := expires.Sub(now)
	return now.Add(min(life*4/5, 24*time.Hour))
}

func (p *payload) add(path string, f file) error {
	if err := checkPath(path); err != nil {
		return err
	}
	p.files[path] = f
	return nil
}

func modeOr(mode *int32, otherwise int32) int32 {
	if mode != nil {
		return *mode
	}
	return otherwise
}

func isTrue(b *bool) bool { return b != nil && *b }
