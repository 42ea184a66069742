// SPDX-License-Identifier: Apache-2.0

// Package zapslog makes a zap logger that writes to a slog handler, for etcd, which takes no other.
package zapslog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a zap logger that writes to log. A library that ends the process through Fatal or Panic does not: fatal gets
// the reason, and only the goroutine ends that could not go on.
//
// Levels keep their names, except that zap's info becomes one step finer than slog's: etcd has a line of it for everything
// that it does.
func New(log *slog.Logger, fatal func(error)) *zap.Logger {
	return zap.New(core{handler: log.Handler()}, zap.WithFatalHook(fatalHook(fatal)), zap.WithPanicHook(fatalHook(fatal)))
}

type fatalHook func(error)

func (f fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	reason := errors.New(entry.Message)
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			reason = fmt.Errorf("%w: %w", reason, err)
		}
	}
	f(reason)
	zapcore.WriteThenGoexit.OnWrite(entry, fields)
}

// core is a zapcore.Core over a slog.Handler.
type core struct{ handler slog.Handler }

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.InfoLevel:
		return slog.LevelInfo - 1
	default:
		return slog.LevelDebug
	}
}

func (c core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{handler: c.handler.WithAttrs(attrs(fields))}
}

func (c core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, level(entry.Level), entry.Message, entry.Caller.PC)
	record.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), record)
}

func (core) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
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
