// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func newClaim(name string, edit func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if edit != nil {
		edit(c)
	}
	return c
}

func newVolume(name, size string, edit func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data/" + name}
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if edit != nil {
		edit(v)
	}
	return v
}

func named(s string) *string { return &s }

func TestChoose(t *testing.T) {
	forClaim := func(ns, name string, uid types.UID) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: name, UID: uid}
		}
	}
	cases := map[string]struct {
		claim   func(*corev1.PersistentVolumeClaim)
		volumes []*corev1.PersistentVolume
		want    string
	}{
		"the smallest that fits":      {volumes: []*corev1.PersistentVolume{newVolume("big", "9Gi", nil), newVolume("b", "2Gi", nil), newVolume("a", "2Gi", nil), newVolume("tiny", "1Mi", nil)}, want: "a"},
		"one that is promised to it":  {volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", nil), newVolume("z", "5Gi", forClaim("ns", "c", ""))}, want: "z"},
		"not one of another claim":    {volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", forClaim("ns", "other", ""))}},
		"not one of an earlier claim": {volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", forClaim("ns", "c", "uid-old"))}},
		"the one that it names":       {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "b" }, volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", nil), newVolume("b", "1Mi", nil)}, want: "b"},
		"not one of another class":    {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = named("fast") }, volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", nil)}},
		"not one with fewer modes": {claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}, volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", nil)}},
		"one that its selector is about": {claim: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}
		}, volumes: []*corev1.PersistentVolume{newVolume("a", "1Gi", nil), newVolume("b", "9Gi", func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"x": "y"} })}, want: "b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if pv := choose(newClaim("c", tc.claim), tc.volumes); pv != nil {
				got = pv.Name
			}
			if got != tc.want {
				t.Errorf("chose %q, want %q", got, tc.want)
			}
		})
	}
}

// provisioned runs a provisioner on these objects.
func provisioned(t *testing.T, test func(t *testing.T, client *fake.Clientset, dir string), objects ...runtime.Object) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(objects...)
		p, err := New(Config{Dir: dir, Node: "n"}, client)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		test(t, client, dir)
	})
}

func theClaim(t *testing.T, client *fake.Clientset, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	c, err := client.CoreV1().PersistentVolumeClaims("ns").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func theVolume(t *testing.T, client *fake.Clientset, name string) *corev1.PersistentVolume {
	t.Helper()
	v, err := client.CoreV1().PersistentVolumes().Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAClaimGetsADirectoryThatGoesWithIt(t *testing.T) {
	provisioned(t, func(t *testing.T, client *fake.Clientset, dir string) {
		c := theClaim(t, client, "c")
		if c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != "pvc-uid-c" || c.Status.Capacity.Storage().String() != "1Gi" {
			t.Fatalf("claim: %+v %+v", c.Spec, c.Status)
		}
		pv := theVolume(t, client, "pvc-uid-c")
		path := filepath.Join(dir, "pvc-uid-c")
		if pv.Spec.HostPath.Path != path || pv.Spec.ClaimRef.UID != "uid-c" || pv.Status.Phase != corev1.VolumeBound {
			t.Errorf("volume: %+v", pv)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("directory: %v, %v", info, err)
		}
		if err := client.CoreV1().PersistentVolumeClaims("ns").Delete(context.Background(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if theVolume(t, client, "pvc-uid-c") != nil {
			t.Error("the volume is still there")
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the directory is still there: %v", err)
		}
	}, newClaim("c", nil))
}

func TestAClaimIsBoundToAVolumeThatWasMadeForIt(t *testing.T) {
	provisioned(t, func(t *testing.T, client *fake.Clientset, _ string) {
		if c := theClaim(t, client, "c"); c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != "mine" {
			t.Errorf("claim: %+v %+v", c.Spec, c.Status)
		}
		if err := client.CoreV1().PersistentVolumeClaims("ns").Delete(context.Background(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if pv := theVolume(t, client, "mine"); pv == nil || pv.Status.Phase != corev1.VolumeReleased {
			t.Errorf("a volume that is to be retained: %+v", pv)
		}
	}, newClaim("c", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = named("") }), newVolume("mine", "2Gi", nil))
}

func TestClaimsThatAreNotForUsStayPending(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "cloud"}, Provisioner: "cloud.example/disk"}
	provisioned(t, func(t *testing.T, client *fake.Clientset, _ string) {
		for _, name := range []string{"cloud", "unknown", "static", "block"} {
			if c := theClaim(t, client, name); c.Status.Phase == corev1.ClaimBound {
				t.Errorf("claim %s is bound to %s", name, c.Spec.VolumeName)
			}
		}
		events, err := client.CoreV1().Events("ns").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]string{}
		for _, e := range events.Items {
			told[e.InvolvedObject.Name] = e.Reason + ": " + e.Message
		}
		want := `ProvisioningFailed: storageclass.storage.k8s.io "gone" not found; this machine has "drover-hostpath", which is used when a claim names none`
		if told["unknown"] != want || told["block"] == "" || told["static"] != "" || told["cloud"] != "" {
			t.Errorf("events: %v", told)
		}
	}, class,
		newClaim("cloud", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = named("cloud") }),
		newClaim("unknown", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = named("gone") }),
		newClaim("static", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = named("") }),
		newClaim("block", func(c *corev1.PersistentVolumeClaim) {
			mode := corev1.PersistentVolumeBlock
			c.Spec.VolumeMode = &mode
		}))
}

func TestTheStorageClassIsTheDefaultUnlessThereIsAnother(t *testing.T) {
	other := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{annotationDefaultClass: "true"}}}
	for want, objects := range map[string][]runtime.Object{"true": nil, "false": {other}} {
		provisioned(t, func(t *testing.T, client *fake.Clientset, _ string) {
			class, err := client.StorageV1().StorageClasses().Get(context.Background(), ClassName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := class.Annotations[annotationDefaultClass]; got != want {
				t.Errorf("default = %s, want %s", got, want)
			}
		}, objects...)
	}
}

func TestADirectoryThatIsNotOursIsNeverRemoved(t *testing.T) {
	dir := t.TempDir()
	pv := newVolume("pvc-uid-c", "1Gi", func(v *corev1.PersistentVolume) {
		v.Annotations = map[string]string{annotationProvisionedBy: Name}
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		v.Spec.HostPath.Path = dir
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "gone", UID: "gone"}
	})
	provisioned(t, func(t *testing.T, _ *fake.Clientset, _ string) {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}, pv)
}
