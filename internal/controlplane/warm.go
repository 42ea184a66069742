package controlplane

import (
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "k8s.io/kubernetes/pkg/controller/garbagecollector"
	_ "k8s.io/kubernetes/pkg/controller/namespace"
	_ "k8s.io/kubernetes/pkg/controller/podgc"
	_ "k8s.io/kubernetes/pkg/controller/serviceaccount"
)
