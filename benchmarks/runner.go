package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/benchmarks/server"
)

// process is a process that measures.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
	words strings.Builder // its output on standard error
}

// launch starts a process for a cell: this program again, or a JVM.
func launch(c cell, java bool) (*process, error) {
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &process{}
	if java {
		built := os.Getenv("REDLATCH_REDISSON")
		if built == "" {
			return nil, fmt.Errorf("REDLATCH_REDISSON does not say where Redisson is; make bench does")
		}
		p.cmd = exec.Command("java", append([]string{"-cp", built + "/classes:" + built + "/lib/*", "redlatch.Bench"}, c.fields()...)...)
	} else {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		p.cmd = exec.Command(self, "-work", string(spec))
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = &p.words
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// await reads up to the expected line. Libraries write lines of their own.
func (p *process) await(word string) error {
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			_ = p.cmd.Wait()
			return fmt.Errorf("no %q: %w: %s", word, err, p.words.String())
		}
		if strings.TrimSpace(line) == word {
			return nil
		}
	}
}

func (p *process) result() (r result, err error) {
	for {
		line, err := p.lines.ReadString('\n')
		if strings.HasPrefix(line, "{") {
			err = json.Unmarshal([]byte(line), &r)
			_ = p.cmd.Wait()
			return r, err
		}
		if err != nil {
			_ = p.cmd.Wait()
			return r, fmt.Errorf("no result: %w: %s", err, p.words.String())
		}
	}
}

func (p *process) end() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// play measures a cell once.
func play(c cell, l library, s *server.Server) (o outcome, err error) {
	if err := s.Flush(); err != nil {
		return o, err
	}
	var all []*process
	defer func() {
		for _, p := range all {
			p.end()
		}
	}()
	for i := range c.Processes {
		c.Process = i
		p, err := launch(c, l.module == javaModule)
		if err != nil {
			return o, err
		}
		all = append(all, p)
	}
	each := func(do func(p *process) error) error {
		for _, p := range all {
			if err := do(p); err != nil {
				return fmt.Errorf("%s: %s: %w", c.Row, c.Library, err)
			}
		}
		return nil
	}
	// The timer ends a process that hangs, and its standard error is the error.
	limit := time.AfterFunc(c.Warm+c.Measure+3*time.Minute, func() {
		for _, p := range all {
			_ = p.cmd.Process.Kill()
		}
	})
	defer limit.Stop()
	if err := each(func(p *process) error { return p.await("ready") }); err != nil {
		return o, err
	}
	if err := each(func(p *process) error { _, err := fmt.Fprintln(p.in, "go"); return err }); err != nil {
		return o, err
	}
	if err := each(func(p *process) error { return p.await("begin") }); err != nil {
		return o, err
	}
	before, err := s.Used(l.sends)
	if err != nil {
		return o, err
	}
	if err := each(func(p *process) error { return p.await("end") }); err != nil {
		return o, err
	}
	after, err := s.Used(l.sends)
	if err != nil {
		return o, err
	}
	var results []result
	err = each(func(p *process) error {
		r, err := p.result()
		results = append(results, r)
		return err
	})
	return merge(c, results, after.Since(before)), err
}
