package redlatchui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lockerr"
)

const (
	actionRelease = "release"
	actionRemove  = "remove-waiter"
	actionResize  = "resize"

	tokenCookie = "redlatch-token"
	mostOfForm  = 16 << 10 // bytes
)

type confirmPage struct {
	head
	Action, Name, ID, Token string
	Heading, Question, Hint string
	Button                  string
	Limit                   int
	IsGone                  bool // there is nothing to do
	Back                    string
}

// allows says who sends a request, and whether they may change something.
func (h *Handler) allows(r *http.Request) (who string, allowed bool) {
	if h.actions == nil {
		return "", false
	}
	return h.actions(r)
}

// mayAct answers with an error if somebody may not change anything.
func (h *Handler) mayAct(w http.ResponseWriter, r *http.Request) (who string, ok bool) {
	action := r.PathValue("action")
	if action != actionRelease && action != actionRemove && action != actionResize {
		http.NotFound(w, r)
		return "", false
	}
	if h.actions == nil {
		h.refuse(w, r, http.StatusForbidden, "This page is read-only.")
		return "", false
	}
	if who, ok = h.actions(r); !ok {
		h.refuse(w, r, http.StatusForbidden, "You may look at locks, and not change them.")
	}
	return who, ok
}

// confirmPage says what an action would do, and asks.
func (h *Handler) confirmPage(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.mayAct(w, r); !ok {
		return
	}
	q := r.URL.Query()
	p := &confirmPage{Action: r.PathValue("action"), Name: q.Get("name"), ID: q.Get("id")}
	if p.Name == "" || p.Action != actionResize && !key.IsAcquisition(p.ID) {
		h.say(w, r, http.StatusBadRequest, "The address does not name what to change.")
		return
	}
	l := h.poller.readLock(r.Context(), p.Name)
	if err := errors.Join(l.err, l.state.Err); err != nil {
		h.say(w, r, http.StatusBadGateway, "Redis did not show the lock: "+display.Safe(err.Error()))
		return
	}
	p.describe(&l.state, l.server)
	p.head = h.head(p.Heading, "")
	p.Back = base(h.prefix, lockLink(p.Name))
	p.Token = h.token(w, r)
	h.pages.write(w, r, http.StatusOK, "confirm", p)
}

func base(prefix, link string) string { return prefix + "/" + link }

func (p *confirmPage) describe(s *catalog.State, now time.Time) {
	name := strconv.Quote(display.Safe(p.Name))
	switch p.Action {
	case actionRelease:
		p.Heading, p.Button = "Release", "Release"
		p.Hint = "The next waiter gets it at once. Nobody stops the holder: it works on until its next renewal, by default up to ten seconds."
		p.IsGone = true
		if s.Lock.Holder == p.ID {
			p.IsGone = false
			p.Question = "Take the mutex " + name + " away from " + display.Safe(display.Holder(p.ID, s.Lock.Description)) + "?"
			if held := display.AgeSince(s.Lock.Since, now); held != "" {
				p.Question += " It has had it for " + held + "."
			}
		}
		for _, holder := range s.Permits.Holders {
			if holder.ID == p.ID {
				p.IsGone = false
				p.Question = "Take " + strconv.Itoa(holder.Units) + " units of the semaphore " + name + " away from " + display.Safe(display.Holder(p.ID, holder.Description)) + "?"
			}
		}
		if p.IsGone {
			p.Question = display.Safe(p.ID) + " has neither the mutex nor a permit of " + name + "."
		}
	case actionRemove:
		p.Heading, p.Button = "Remove waiter", "Remove"
		p.Question = "Remove the waiter " + display.Safe(p.ID) + " from the queue of " + name + "?"
		p.Hint = "Its call fails. It may queue again."
	case actionResize:
		p.Heading, p.Button, p.Limit = "Resize", "Resize", max(s.Permits.Limit, 1)
		p.Question = "Change the limit of the semaphore " + name + " for all programs?"
		p.Hint = "The limit is " + strconv.Itoa(s.Permits.Limit) + " now. No permit is taken away. Programs go on to pass their own limit, so deploy the new limit too."
		if s.Permits.Limit == 0 {
			p.IsGone, p.Question = true, "Nobody has used the semaphore "+name+" lately. The next program sets its limit."
		}
	}
}

// token returns the secret of this browser, which its forms must repeat. Another site can neither
// read nor set it, unless it is another port of the same host.
func (h *Handler) token(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(tokenCookie); err == nil && len(c.Value) == len(rand.Text()) {
		return c.Value
	}
	secret := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: secret, Path: h.prefix + "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	return secret
}

func hasToken(r *http.Request) bool {
	c, err := r.Cookie(tokenCookie)
	return err == nil && c.Value != "" && subtle.ConstantTimeCompare([]byte(c.Value), []byte(r.PostFormValue("token"))) == 1
}

// act does what a form asks for, and logs who did it.
func (h *Handler) act(w http.ResponseWriter, r *http.Request) {
	who, ok := h.mayAct(w, r)
	if !ok {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostOfForm)
	if !hasToken(r) {
		h.refuse(w, r, http.StatusForbidden, "The form is not from this page, or it is too old. Go back, reload the page, and try again.")
		return
	}
	action, name, id := r.PathValue("action"), r.PostFormValue("name"), r.PostFormValue("id")
	if name == "" {
		h.say(w, r, http.StatusBadRequest, "The form has no name of a lock.")
		return
	}
	// A viewer who leaves must not end an action half-way.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pageTimeout)
	defer cancel()
	log := h.logger.With("who", who, "action", action, "name", name, "id", id, "remote", r.RemoteAddr)
	result, err := h.do(ctx, action, name, id, r.PostFormValue("limit"))
	if err != nil {
		log.ErrorContext(ctx, "redlatch: an action of the page failed", "error", err)
		status := http.StatusBadGateway
		if errors.Is(err, lockerr.ErrConfig) {
			status = http.StatusBadRequest
		}
		h.say(w, r, status, display.Safe(err.Error()))
		return
	}
	log.InfoContext(ctx, "redlatch: an action of the page", "result", result, "limit", r.PostFormValue("limit"))
	http.Redirect(w, r, base(h.prefix, lockLink(name))+"&"+url.Values{"done": {result}}.Encode(), http.StatusSeeOther)
}

// do returns a key of done.
func (h *Handler) do(ctx context.Context, action, name, id, limitText string) (string, error) {
	switch action {
	case actionRelease:
		released, err := h.names.Release(ctx, name, id)
		return word(released, "released", "not-held"), err
	case actionRemove:
		removed, err := h.names.RemoveWaiter(ctx, name, id)
		return word(removed, "removed", "not-waiting"), err
	}
	limit, err := strconv.Atoi(limitText)
	if err != nil || limit < 1 {
		return "", &lockerr.ConfigError{Setting: "limit", Value: limitText, Reason: "must be a number from 1"}
	}
	before, err := h.names.Resize(ctx, name, limit)
	return word(before > 0, "resized", "not-used"), err
}

func word(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}
