/* One acquire that goes unanswered and is sent again, with late copies of every
 * unanswered command, and what is left of it when nobody wants it any more.
 *
 * Time is the server's clock, in ticks. The client's guess of it is late by up
 * to LAG, by more or less from one moment to the next (session/clock.go). Leases
 * do not end here: a lock that stays is an error, not a matter of half a minute.
 *
 * Each guard can be taken out by its symbol; the checker must then find a lock
 * that stays, or a fence that is not the holder's. The model is bounded and says
 * something about the protocol, not about the code.
 */
#define LIMIT 2 /* settings.CallLimit: how long a command is valid */
#define LAG   1
#define LAST  2 /* no attempt begins later */
#define TIME  8
#define TRIES 2

#define FREE  0
#define ME    1
#define OTHER 2

bool lock_stays, wrong_fence; /* false: names of the errors */

byte now;

byte owner = FREE; /* the lock's hash in Redis */
byte holds;        /* its holds, as Redis has them */
byte stored;       /* the last fence, in Redis */

bool sent[TRIES];    /* on its way, perhaps more than once */
byte until[TRIES];   /* void after: ARGV[4] of acquire.lua */
bool replied[TRIES]; /* a reply is on its way */
bool granted[TRIES]; /* and says so, with this fence */
byte fenceOf[TRIES];
bool left[TRIES];    /* the client waits for that reply no more */
bool landed[TRIES];  /* and has heard it after all */
byte over[TRIES];    /* or else takes it for void after that: inflight.go, a timer for each */

bool held;  /* the client has a hold */
byte fence; /* and this is its fence */
bool done;  /* nobody comes back for this acquisition */

/* serverClock.now */
inline guess(g)
{
	if
	:: g = now
	:: now >= LAG -> g = now - LAG
#ifdef EARLY_GUESS
	:: g = now + 1
#endif
	fi
}

/* acquire.lua */
inline acquire(n)
{
	replied[n] = true;
	if
#ifndef NO_END
	:: now > until[n] -> skip /* {-2, now_us} */
#endif
	:: else ->
		if
		:: owner == ME -> /* a copy finds its own acquisition */
#ifdef COUNTS_UP
			holds++; /* HINCRBY, and not the number meant */
#endif
#ifdef COPY_TAKES_FENCE
			stored++;
#endif
			granted[n] = true; fenceOf[n] = stored
		:: owner == FREE -> owner = ME; holds = 1; stored++; granted[n] = true; fenceOf[n] = stored
		:: else -> skip /* {0, ...} */
		fi
	fi
}

/* release.lua */
inline release()
{
	if
#ifdef COUNTS_UP
	:: owner == ME && holds > 1 -> holds--
#endif
	:: owner == ME && holds == 1 -> owner = FREE; holds = 0
	:: owner != ME -> skip /* {0} */
	fi
}

/* What is on its way arrives when it likes. Bounded only where the number of
 * holds or the fence would grow for ever. */
active proctype Network()
{
	byte copies;
end:	do
	:: atomic { copies < 4 && sent[0] -> acquire(0); copies++ }
	:: atomic { copies < 4 && sent[1] -> acquire(1); copies++ }
	od
}

/* inflight.go newInFlight: the reply to an attempt that was left behind. What was answered
 * has no copies. */
active proctype Landing()
{
end:	do
	:: atomic { left[0] && replied[0] && !landed[0] -> landed[0] = true; sent[0] = false }
	:: atomic { left[1] && replied[1] && !landed[1] -> landed[1] = true; sent[1] = false }
	od
}

/* InFlight.pending, for the attempts before n, all of which were left behind */
#define FLIES(i) (!landed[i] && now <= over[i])
#ifdef LAST_ONLY
#define FLYING (n > 0 && FLIES(n - 1))
#else
#define FLYING ((n > 0 && FLIES(0)) || (n > 1 && FLIES(1)))
#endif

/* Somebody else wants the lock once. */
active proctype Other()
{
end:	atomic { owner == FREE -> owner = OTHER; stored++ };
	atomic { owner = FREE }
}

active proctype Clock()
{
end:	do
	:: now < TIME -> now++
	od
}

/* session.Do under request.contend, and what becomes of it */
active proctype Client()
{
	byte n, t;
	bool flying;
	do
	:: n < TRIES && now <= LAST ->
		atomic { guess(t); until[n] = t + LIMIT; sent[n] = true }; /* session/operation.go runAttempt */
		if
		:: atomic { granted[n] -> /* lua/noretry.go noRetryCmd: what was answered has no copies */
			sent[n] = false; held = true; fence = fenceOf[n] }; break
		/* unanswered: Do leaves it behind, with a timer for what is left of it */
		:: atomic { guess(t); over[n] = until[n] - t + now; left[n] = true; n++ }
		fi
	:: n > 0 || now > LAST -> break /* the context has ended */
	od;
	held = false;          /* Unlock, or request.discardAnswer: the hold ends before Redis is asked */
#ifndef FLYING_AFTER
	flying = FLYING;
#endif
	atomic { release() }; /* backend.free, or session/cleanup.go CleanUp */
#ifdef FLYING_AFTER
	flying = FLYING; /* what was answered meanwhile may have been granted after the release */
#endif
#ifndef ONE_RELEASE
	/* cleanup.go: once more, when each that was unanswered before has been answered, or
	 * can be granted no more. */
	if
	:: flying ->
#ifdef FIRST_LANDING
end:		!FLIES(0) || (n > 1 && !FLIES(1));
#else
end:		!FLYING;
#endif
		atomic { release() }
	:: else -> skip
	fi;
#endif
	done = true
}

/* An acquisition that is over has no lock, also if a copy comes now. */
active proctype Monitor()
{
end:	if
	:: atomic { done && owner == ME -> assert(lock_stays) }
	:: atomic { held && stored != fence -> assert(wrong_fence) }
	fi
}
