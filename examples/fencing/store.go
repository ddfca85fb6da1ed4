package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // SQLite without cgo
)

// store is the resource that the lock protects. It is a table whose rows remember the largest fence
// that has written to them.
type store struct{ db *sql.DB }

func openStore(path string) (*store, error) {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	return &store{db}, nil
}

func (s *store) create(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `
		CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT NOT NULL, fence INTEGER NOT NULL);
		INSERT INTO report VALUES (1, 'empty', 0);`)
	return err
}

// errStale rejects a write that came after somebody with a larger fence had written.
var errStale = errors.New("rejected: a later holder of the lock has written")

// write is one conditional statement, so nothing can happen between the check and the write. It
// accepts equal fences, because one holder may write many times.
func (s *store) write(ctx context.Context, body string, fence int64) error {
	result, err := s.db.ExecContext(ctx,
		`UPDATE report SET body = ?, fence = ? WHERE id = 1 AND fence <= ?`, body, fence, fence)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = errStale
	}
	return err
}

func (s *store) show(ctx context.Context) (string, error) {
	var body string
	var fence int64
	err := s.db.QueryRowContext(ctx, `SELECT body, fence FROM report WHERE id = 1`).Scan(&body, &fence)
	return fmt.Sprintf("%q, fence %d", body, fence), err
}
