package lua

// While a slot of a cluster migrates, Redis runs a script only if one node has all of its keys. Else it
// answers TRYAGAIN. Many of these keys do not exist most of the time, so this may last for as long as the
// migration. The functions that release, renew or take over what somebody has then send the script again.
// The first key stands in the places of the keys that are not needed. The headers say which these are, and
// what the script does without them.

// isSplit reports whether Redis did not run a script because no node has all of its keys.
func isSplit(err error) bool {
	if err == nil {
		return false
	}
	_, code := Classify(err)
	return code == "TRYAGAIN"
}
