// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/drover-dev/drover/internal/node/downward"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type objects struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	tokens     int
	now        func() time.Time
}

func get[T any](m map[string]*T, kind, name string) (*T, error) {
	if o, ok := m[name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(kind), name)
}

func (o *objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return get(o.configMaps, "configmap", name)
}

func (o *objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return get(o.secrets, "secret", name)
}

func (o *objects) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return get(o.claims, "persistentvolumeclaim", name)
}

func (o *objects) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return get(o.volumes, "persistentvolume", name)
}

func (o *objects) Token(_ context.Context, pod *corev1.Pod, audience string, lifetime time.Duration) (*authenticationv1.TokenRequest, error) {
	o.tokens++
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("token%d-%s-%s", o.tokens, pod.Spec.ServiceAccountName, audience),
		ExpirationTimestamp: metav1.NewTime(o.now().Add(lifetime)),
	}}, nil
}

type fixture struct {
	*Manager
	objects *objects
	clock   *testingclock.FakePassiveClock
	pod     *corev1.Pod
}

func newFixture(t *testing.T, volumes ...corev1.Volume) *fixture {
	t.Helper()
	c := testingclock.NewFakePassiveClock(start)
	o := &objects{
		configMaps: map[string]*corev1.ConfigMap{"cm": {
			Data: map[string]string{"a": "A", "b": "B"}, BinaryData: map[string][]byte{"bin": {0, 1}},
		}},
		secrets: map[string]*corev1.Secret{"sec": {Data: map[string][]byte{"pass": []byte("s3cret")}}},
		now:     c.Now,
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "uid-1", Labels: map[string]string{"l": "v"}}}
	pod.Spec.ServiceAccountName = "robot"
	pod.Spec.Volumes = volumes
	f := &fixture{objects: o, clock: c, pod: pod}
	f.Manager = New(t.TempDir(), t.TempDir(), "n", o, c, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := f.Cleanup(pod.UID); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) setup(t *testing.T, previous *Set) *Set {
	t.Helper()
	set, err := f.Setup(context.Background(), downward.Values{Pod: f.pod}, previous)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// tree lists the files that a process sees below a volume: "name mode content", sorted.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, "..") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if name != "." && d.Type()&fs.ModeSymlink != 0 {
				for _, below := range tree(t, path+"/") {
					list = append(list, name+"/"+below)
				}
			}
			return nil
		}
		data, err := os.ReadFile(path)
		list = append(list, fmt.Sprintf("%s %04o %s", name, info.Mode().Perm(), data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func mode(m int32) *int32 { return &m }

func TestVolumesThatMirrorObjects(t *testing.T) {
	yes := true
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	cases := map[string]struct {
		source corev1.VolumeSource
		want   []string
		err    string
	}{
		"all keys of a ConfigMap": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("cm")}},
			want:   []string{"a 0644 A", "b 0644 B", "bin 0644 \x00\x01"},
		},
		"some keys at other paths and with other modes": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: local("cm"), DefaultMode: mode(0o400),
				Items: []corev1.KeyToPath{{Key: "a", Path: "x/y"}, {Key: "b", Path: "run.sh", Mode: mode(0o755)}},
			}},
			want: []string{"run.sh 0755 B", "x/y 0400 A"},
		},
		"a Secret": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "sec", DefaultMode: mode(0o400)}},
			want:   []string{"pass 0400 s3cret"},
		},
		"what is optional and missing is empty": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none", Optional: &yes}},
		},
		"fields of the pod": {
			source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				{Path: "who/name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}, Mode: mode(0o600)},
			}}},
			want: []string{"labels 0644 l=\"v\"", "who/name 0600 p"},
		},
		"everything in one": {
			source: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode(0o440), Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("cm"), Items: []corev1.KeyToPath{{Key: "a", Path: "ca.crt"}}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: local("sec")}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
					{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
				}}},
			}}},
			want: []string{"ca.crt 0440 A", "namespace 0440 ns", "pass 0440 s3cret", "token 0440 token1-robot-vault"},
		},
		"a missing ConfigMap": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("none")}},
			err:    `MountVolume.SetUp failed for volume "v" : configmap "none" not found`,
		},
		"a missing key": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("cm"), Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}},
			err:    `MountVolume.SetUp failed for volume "v" : references non-existent config key: z`,
		},
		"a path that leads out of the volume": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("cm"), Items: []corev1.KeyToPath{{Key: "a", Path: "x/../../z"}}}},
			err:    `MountVolume.SetUp failed for volume "v" : config "cm": invalid path "x/../../z"`,
		},
		"a kind that this node does not know": {
			source: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}},
			err:    `MountVolume.SetUp failed for volume "v" : a volume of kind nfs is not supported by this node`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, corev1.Volume{Name: "v", VolumeSource: tc.source})
			set, err := f.Setup(context.Background(), downward.Values{Pod: f.pod}, nil)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error = %v\nwant    %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			path, readOnly, _ := set.Path("v")
			if !readOnly {
				t.Error("a volume that mirrors objects can be written to")
			}
			if diff := cmp.Diff(tc.want, tree(t, path)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAVolumeFollowsItsConfigMapInOneStep(t *testing.T) {
	f := newFixture(t, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}},
	}})
	set := f.setup(t, nil)
	path, _, _ := set.Path("v")
	first, err := os.Readlink(filepath.Join(path, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	set = f.setup(t, set)
	if again, _ := os.Readlink(filepath.Join(path, "..data")); again != first {
		t.Errorf("unchanged files were written again: ..data %s, then %s", first, again)
	}
	f.objects.configMaps["cm"] = &corev1.ConfigMap{Data: map[string]string{"a": "A2", "c": "C"}}
	f.setup(t, set)
	if diff := cmp.Diff([]string{"a 0644 A2", "c 0644 C"}, tree(t, path)); diff != "" {
		t.Errorf("files after the change (-want +got):\n%s", diff)
	}
	if _, err := os.Lstat(filepath.Join(path, first)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old files are still there: %v", err)
	}
}

func TestATokenIsReplacedWhenFourFifthsOfItsLifeAreOver(t *testing.T) {
	f := newFixture(t, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}},
	}})
	set := f.setup(t, nil)
	if want := start.Add(48 * time.Minute); !set.Refresh.Equal(want) {
		t.Errorf("refresh at %s, want %s", set.Refresh, want)
	}
	path, _, _ := set.Path("v")
	f.clock.SetTime(start.Add(47 * time.Minute))
	set = f.setup(t, set)
	if diff := cmp.Diff([]string{"token 0644 token1-robot-"}, tree(t, path)); diff != "" {
		t.Errorf("before the time (-want +got):\n%s", diff)
	}
	f.clock.SetTime(start.Add(48 * time.Minute))
	f.setup(t, set)
	if diff := cmp.Diff([]string{"token 0644 token2-robot-"}, tree(t, path)); diff != "" {
		t.Errorf("at the time (-want +got):\n%s", diff)
	}
}

func TestATokenBelongsToTheUserOfThePod(t *testing.T) {
	f := newFixture(t, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}},
	}})
	uid := int64(1234)
	f.pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &uid}
	f.pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	path, _, _ := f.setup(t, nil).Path("v")
	if diff := cmp.Diff([]string{"token 0600 token1-robot-"}, tree(t, path)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if owner := ownerOf(t, filepath.Join(path, "token")); os.Geteuid() == 0 && owner.Uid != 1234 {
		t.Errorf("owner = %d, want 1234", owner.Uid)
	}
}

func TestEmptyDir(t *testing.T) {
	gid := int64(4321)
	limit := resource.MustParse("1Mi")
	f := newFixture(t,
		corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}}},
	)
	f.pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &gid}
	set := f.setup(t, nil)
	disk, _, _ := set.Path("disk")
	memory, _, _ := set.Path("memory")
	if err := os.WriteFile(filepath.Join(disk, "f"), make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	f.setup(t, set) // must keep what is there
	usage, err := f.Usage(f.pod)
	if err != nil {
		t.Fatal(err)
	}
	if n := usage["disk"]; n < 100<<10 || n > 120<<10 {
		t.Errorf("usage of a volume with a file of 100 KiB: %d", n)
	}
	if os.Geteuid() != 0 {
		return // mounts and owners are for root
	}
	if err := os.WriteFile(filepath.Join(memory, "big"), make([]byte, 2<<20), 0o600); err == nil {
		t.Error("2 MiB fit into a memory volume of 1 MiB")
	}
	for _, dir := range []string{disk, memory} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if owner := ownerOf(t, dir); owner.Gid != 4321 || info.Mode()&fs.ModeSetgid == 0 || info.Mode().Perm() != 0o777 {
			t.Errorf("%s has group %d and mode %s", dir, owner.Gid, info.Mode())
		}
	}
	if err := f.Cleanup(f.pod.UID); err != nil {
		t.Fatal(err)
	}
	if left, err := mountsBelow(f.dir); err != nil || len(left) != 0 {
		t.Errorf("mounts left behind: %v, %v", left, err)
	}
	if uids, err := f.Pods(); err != nil || len(uids) != 0 {
		t.Errorf("directories left behind: %v, %v", uids, err)
	}
}

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	existing := filepath.Join(dir, "file")
	if err := os.WriteFile(existing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		kind corev1.HostPathType
		path string
		err  string
	}{
		"nothing is checked without a type":  {"", existing, ""},
		"a directory is made when wanted":    {corev1.HostPathDirectoryOrCreate, dir + "/new", ""},
		"a file is made when wanted":         {corev1.HostPathFileOrCreate, dir + "/newfile", ""},
		"a directory that is one":            {corev1.HostPathDirectory, dir, ""},
		"a file that is one":                 {corev1.HostPathFile, existing, ""},
		"a character device that is one":     {corev1.HostPathCharDev, "/dev/null", ""},
		"a directory that is missing":        {corev1.HostPathDirectory, dir + "/none", "is not a directory"},
		"a file that is a directory":         {corev1.HostPathFile, dir, "is not a file"},
		"a socket that is a file":            {corev1.HostPathSocket, existing, "is not a socket file"},
		"a block device that is a character": {corev1.HostPathBlockDev, "/dev/null", "is not a block device"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := checkHostPath(&corev1.HostPathVolumeSource{Path: tc.path, Type: &tc.kind})
			switch {
			case tc.err == "" && err != nil:
				t.Error(err)
			case tc.err != "" && (err == nil || !strings.HasSuffix(err.Error(), tc.err)):
				t.Errorf("error = %v, want … %s", err, tc.err)
			}
			if tc.err == "" {
				if _, err := os.Stat(tc.path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestClaim(t *testing.T) {
	dir := t.TempDir()
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "claim-1"}}
	claim.Spec.VolumeName, claim.Status.Phase = "pv", corev1.ClaimBound
	pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: dir}
	pv.Spec.ClaimRef = &corev1.ObjectReference{UID: "claim-1"}

	edit := func(change func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)) *objects {
		c, v := claim.DeepCopy(), pv.DeepCopy()
		change(c, v)
		return &objects{claims: map[string]*corev1.PersistentVolumeClaim{"c": c}, volumes: map[string]*corev1.PersistentVolume{"pv": v}}
	}
	cases := map[string]struct {
		objects *objects
		err     string
	}{
		"a bound claim": {objects: edit(func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {})},
		"a claim that is missing": {
			objects: &objects{},
			err:     `persistentvolumeclaim "c" not found`,
		},
		"a claim that is not bound": {
			objects: edit(func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Spec.VolumeName = "" }),
			err:     `persistentvolumeclaim "c" is not bound to a volume`,
		},
		"a volume of another claim": {
			objects: edit(func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "x" }),
			err:     `persistentvolume "pv" is not bound to persistentvolumeclaim "c"`,
		},
		"a volume of another node": {
			objects: edit(func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
				v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"other"}}},
				}}}}
			}),
			err: `persistentvolume "pv" cannot be used on this node`,
		},
		"a volume of another kind": {
			objects: edit(func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
				v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}
			}),
			err: `persistentvolume "pv" is neither hostPath nor local, which is not supported by this node`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}})
			f.Manager.objects = tc.objects
			set, err := f.Setup(context.Background(), downward.Values{Pod: f.pod}, nil)
			if tc.err != "" {
				if want := `MountVolume.SetUp failed for volume "v" : ` + tc.err; err == nil || err.Error() != want {
					t.Errorf("error = %v\nwant    %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if path, readOnly, _ := set.Path("v"); path != dir || !readOnly {
				t.Errorf("path %q, read-only %t", path, readOnly)
			}
		})
	}
}

func TestMounts(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	set := &Set{byName: map[string]mounted{"data": {path: dir}, "config": {path: "/config", readOnly: true}}}
	expand := func(s string) (string, error) {
		if s == "$(NONE)" {
			return "", errors.New(`missing value for "NONE"`)
		}
		return strings.ReplaceAll(s, "$(POD)", "p"), nil
	}
	cases := map[string]struct {
		mounts []corev1.VolumeMount
		want   []Mount
		err    string
	}{
		"inner targets come after outer ones": {
			mounts: []corev1.VolumeMount{{Name: "config", MountPath: "/data/etc"}, {Name: "data", MountPath: "/data"}},
			want:   []Mount{{Source: dir, Target: "/data"}, {Source: "/config", Target: "/data/etc", ReadOnly: true}},
		},
		"a missing subPath becomes a directory": {
			mounts: []corev1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: "x/y", ReadOnly: true}},
			want:   []Mount{{Source: dir + "/x/y", Target: "/d", ReadOnly: true}},
		},
		"a subPath with a variable": {
			mounts: []corev1.VolumeMount{{Name: "data", MountPath: "d", SubPathExpr: "$(POD)/z"}},
			want:   []Mount{{Source: dir + "/p/z", Target: "/d"}},
		},
		"a symbolic link cannot lead out of the volume": {
			mounts: []corev1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: "out/passwd"}},
			want:   []Mount{{Source: dir + "/etc/passwd", Target: "/d"}},
		},
		"a subPath cannot lead out of the volume": {
			mounts: []corev1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: "../x"}},
			err:    "failed to prepare subPath for volumeMount \"data\" of container \"c\": unable to provision SubPath `../x`: must not contain '..'",
		},
		"a variable that is not set": {
			mounts: []corev1.VolumeMount{{Name: "data", MountPath: "/d", SubPathExpr: "$(NONE)"}},
			err:    `missing value for "NONE"`,
		},
		"a volume that the pod does not have": {
			mounts: []corev1.VolumeMount{{Name: "none", MountPath: "/d"}},
			err:    `cannot find volume "none" to mount into container "c"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := set.Mounts(&corev1.Container{Name: "c", VolumeMounts: tc.mounts}, expand)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error = %v\nwant    %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			for _, m := range got {
				if _, err := os.Stat(m.Source); m.Source != "/config" && err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func ownerOf(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t)
}
