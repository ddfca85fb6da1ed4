package acquisition

// SendCallSite stands for a method of redlatch with which a goroutine begins.
func SendCallSite(sites chan<- CallSite) { sites <- callerOfMethod() }

func callerOfMethod() CallSite { return CallerSite() }
