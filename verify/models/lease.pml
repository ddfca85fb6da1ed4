/* Renewal, unlock and expiry of a lease, among two clients that take turns.
 *
 * Time is counted in ticks. The server's clock may run ahead of the clients' by
 * DRIFT within a lease. Commands take any time, replies are lost or late, and any
 * number of copies of renewals and releases arrive at any time later.
 *
 * Each guard can be taken out by its symbol; the checker must then find a holder
 * that trusts in a lock it does not have, a lock that comes back after its
 * release, or a loss that is none. The model is bounded and says something about
 * the protocol, not about the code.
 */
#define LEASE  3
#define DRIFT  1
#ifdef NO_MARGIN
#define MARGIN 0
#else
#define MARGIN 1
#endif
#define TIME   4

#define CLIENTS 2
#define IDS     3 /* acquisitions: 0 and 1 are those of client 0, 2 is that of client 1 */
#define FREE    IDS

bool trusts_in_vain, lock_comes_back, false_loss; /* false: names of the errors */

byte now;   /* the clients' monotonic clock */
bool ahead; /* the server's is DRIFT further */

byte owner = FREE; /* server: the acquisition in the hash */
byte ends;         /* server: its TTL, as an instant of the server's clock */
bool freed[IDS];   /* server: it was given back, and not lost */

mtype = { none, live, leaving };
mtype copies[IDS] = none; /* which commands may arrive (again) now: renewals; releases as well */
mtype state[CLIENTS] = none; /* acquisition.state */
byte id[CLIENTS] = FREE; /* which acquisition; kept only while it may have the lock */
byte trust[CLIENTS]; /* Lease.trust */

#define SERVER (now + (ahead -> DRIFT : 0))
#define TRUSTED(c) (state[c] == live && now < trust[c])

/* Redis drops the key when its time is over. */
inline expire()
{
	if
	:: owner != FREE && SERVER >= ends -> owner = FREE; ends = 0
	:: else -> skip
	fi
}

/* renew.lua */
inline renew(a, answer)
{
	if
	:: owner == a -> answer = true; ends = (ends > SERVER + LEASE -> ends : SERVER + LEASE)
#ifdef RENEW_ANY_OWNER
	:: owner != a && owner != FREE -> answer = true; ends = SERVER + LEASE
#endif
#ifdef RENEW_CREATES
	:: owner == FREE -> answer = true; owner = a; ends = SERVER + LEASE
#endif
	:: else -> answer = false
	fi
}

/* release.lua */
inline release(a)
{
	if
	:: owner == a -> owner = FREE; ends = 0; freed[a] = true
#ifdef RELEASE_ANY_OWNER
	:: owner != a && owner != FREE -> owner = FREE; ends = 0
#endif
	:: else -> skip
	fi
}

active proctype Clock()
{
end:	do
	:: atomic { now < TIME -> now++; expire() }
	:: atomic { !ahead -> ahead = true; expire() }
	od
}

/* Late copies; nobody waits for their answers. */
active proctype Copies()
{
	bool nobody;
	byte a;
end:	do
	:: atomic { copies[0] != none -> renew(0, nobody); nobody = false }
	:: atomic { copies[1] != none -> renew(1, nobody); nobody = false }
	:: atomic { copies[2] != none -> renew(2, nobody); nobody = false }
	:: atomic { copies[0] == leaving -> release(0) }
	:: atomic { copies[1] == leaving -> release(1) }
	:: atomic { copies[2] == leaving -> release(2) }
	od
}

/* Lock and Unlock, once: reentrant/wait.go try, acquisition/hold.go Unlock */
inline turn(c, a)
{
	atomic { id[c] = a; sent = now }; /* session.NewAcquisition, session.Do */
	atomic {                          /* acquire.lua */
		if
		:: owner == FREE && now < TIME ->
			owner = a; ends = SERVER + LEASE; freed[a] = false; got = true;
			copies[a] = (copies[a] == none -> live : copies[a])
		:: else -> skip
		fi };
	if
	:: got ->
		atomic { got = false;
#ifdef COUNTED_FROM_REPLY
			sent = now;
#endif
			trust[c] = sent + LEASE - MARGIN; state[c] = live }; /* watchdog.Watch */
		if
		:: state[c] == none -> skip /* told of a loss: acquisition.expire */
#ifdef NO_STOP
		:: atomic { state[c] == live -> copies[a] = leaving };
#else
		:: atomic { state[c] == live -> state[c] = leaving; trust[c] = 0; copies[a] = leaving }; /* Hold.close; leave: lease.Stop */
#endif
			atomic { release(a) }; /* backend.free */
			state[c] = none
		fi
	:: !got -> skip /* refused */
	fi;
	atomic { id[c] = FREE; trust[c] = 0; sent = 0 }
}

active proctype Client0()
{
	byte sent;
	bool got;
	turn(0, 0);
#ifdef SAME_ID
	turn(0, 0) /* the owner, and not the acquisition, is in Redis */
#else
	turn(0, 1)
#endif
}

active proctype Client1()
{
	byte sent;
	bool got;
	turn(1, 2)
}

/* The watchdog of one client. One renewal of a lease is under way at most. */
proctype Watchdog(byte c)
{
	byte a, sent;
	bool ours;
end:	do
	:: atomic { TRUSTED(c) -> a = id[c]; sent = now }; /* loop.go start */
		atomic { renew(a, ours) };
		if
		:: atomic { state[c] == live && id[c] == a -> /* call.go applyAnswer */
			if
			:: ours && sent + LEASE - MARGIN > trust[c] -> trust[c] = sent + LEASE - MARGIN /* Lease.prove */
			:: ours && sent + LEASE - MARGIN <= trust[c] -> skip
			:: !ours -> /* Gone */
				if
				:: freed[a] -> assert(false_loss)
				:: else -> state[c] = none
				fi
			fi }
		:: state[c] != live || id[c] != a -> skip /* too late for any answer */
		:: true -> skip /* no answer: Unknown */
#ifdef UNKNOWN_EXTENDS
			; trust[c] = sent + LEASE - MARGIN
#endif
		fi;
		atomic { a = 0; sent = 0; ours = false }
	:: atomic { state[c] == live && now >= trust[c] -> state[c] = none } /* loop.go: TrustEnded */
	od
}

init { atomic { run Watchdog(0); run Watchdog(1) } }

/* Who trusts has the lock; so two never do. A lock that was given back stays so. */
active proctype Monitor()
{
end:	if
	:: atomic { TRUSTED(0) && (owner != id[0] || SERVER >= ends) -> assert(trusts_in_vain) }
	:: atomic { TRUSTED(1) && (owner != id[1] || SERVER >= ends) -> assert(trusts_in_vain) }
	:: atomic { owner != FREE && freed[owner] -> assert(lock_comes_back) }
	fi
}
