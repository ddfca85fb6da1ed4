package event

// Primitive is a kind of lock.
type Primitive uint8

// Primitives of redlatch.
const (
	Mutex Primitive = iota + 1
	FairMutex
	Semaphore
)

// String returns the primitive in words that are joined by underscores.
func (p Primitive) String() string { return word(primitives, p) }

var primitives = []string{Mutex: "mutex", FairMutex: "fair_mutex", Semaphore: "semaphore"}
