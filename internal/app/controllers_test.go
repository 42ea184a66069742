// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/config"
)

func TestNoControllerRunsThatNobodyHasAskedFor(t *testing.T) {
	cases := map[string]struct {
		enabled []string
		want    []string
	}{
		"none":                             {[]string{"-*"}, nil},
		"Jobs alone":                       {[]string{"job"}, []string{"job"}},
		"Volcano's Jobs and their gangs":   {[]string{"vcjob"}, []string{"vcjob", "gang"}},
		"PodGroups of plain pods":          {[]string{"podgroup"}, []string{"gang", "podgroup"}},
		"CronJobs of both kinds, no gangs": {[]string{"cronjob", "cronvcjob"}, []string{"cronjob", "cronvcjob"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := config.Controllers{Manage: config.ManageAll, Gang: config.GangNative, Enabled: tc.enabled}
			c, err := NewControllers(cfg, &rest.Config{Host: "127.0.0.1:1"}, slog.New(slog.DiscardHandler)) // nothing connects yet
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.order, tc.want) {
				t.Errorf("runs %q, want %q", c.order, tc.want)
			}
		})
	}
}

func TestAProcessThatOnlyServesWebhooksGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewControllers(config.Controllers{Enabled: []string{"-*"}}, &rest.Config{Host: "https://localhost"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it has ended although nobody asked for it: %v", err)
		case <-c.Ready():
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}
