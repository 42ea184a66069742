// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"strconv"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// setupLogging leads klog, through which every Kubernetes component logs, into log. It is for the whole process and must
// run before the first component starts.
func setupLogging(c *Config) error {
	// Components that apply a logging configuration of their own must not fail because this one is there already.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// klog keeps its verbosity behind a flag; there is no other way to set it.
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	if err := fs.Set("v", strconv.Itoa(c.Verbosity)); err != nil {
		return err
	}
	klog.SetSlogLogger(c.Log.With("component", "kubernetes"))
	klog.OsExit = func(code int) {
		c.Exiting()
		os.Exit(code)
	}
	return nil
}

// zapLogger returns a zap logger that writes to log. etcd ends itself through Fatal and Panic; then fatal gets the reason,
// and only the goroutine ends that could not go on.
func zapLogger(log *slog.Logger, fatal func(error)) *zap.Logger {
	return zap.New(zapCore{handler: log.Handler()}, zap.WithFatalHook(fatalHook(fatal)), zap.WithPanicHook(fatalHook(fatal)))
}

type fatalHook func(error)

func (f fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := entry.Message
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			text += ": " + err.Error()
		}
	}
	f(errors.New(text))
	zapcore.WriteThenGoexit.OnWrite(entry, fields)
}

// zapCore is a zapcore.Core over a slog.Handler.
type zapCore struct{ handler slog.Handler }

func zapLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.InfoLevel:
		// What etcd calls info is a line a second of "saved snapshot" and "compacted"; clusters see it in etcd's own log.
		return slog.LevelInfo - 1
	default:
		return slog.LevelDebug
	}
}

func (c zapCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), zapLevel(l))
}

func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{handler: c.handler.WithAttrs(zapAttrs(fields))}
}

func (c zapCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c zapCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, zapLevel(entry.Level), entry.Message, entry.Caller.PC)
	record.AddAttrs(zapAttrs(fields)...)
	return c.handler.Handle(context.Background(), record)
}

func (zapCore) Sync() error { return nil }

func zapAttrs(fields []zapcore.Field) []slog.Attr {
	values := zapcore.NewMapObjectEncoder()
	attrs := make([]slog.Attr, 0, len(fields))
	for _, field := range fields {
		clear(values.Fields)
		field.AddTo(values)
		for key, value := range values.Fields {
			attrs = append(attrs, slog.Any(key, value))
		}
	}
	return attrs
}
