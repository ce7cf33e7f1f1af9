# Reads the output of go test -json. Prints what failed tests and packages said, why tests were skipped, and last a line
# of three numbers: tests passed, failed, skipped. A package that fails without a failed test (it does not build, or it
# panicked or timed out) counts as one.

function field(name,   start, rest, out, c) {
  start = index($0, "\"" name "\":\"")
  if (start == 0) return ""
  rest = substr($0, start + length(name) + 4)
  out = ""
  while (rest != "") {
    c = substr(rest, 1, 1)
    if (c == "\"") break
    if (c == "\\") { out = out substr(rest, 1, 2); rest = substr(rest, 3); continue }
    out = out c
    rest = substr(rest, 2)
  }
  return out
}

function plain(text) {
  gsub(/\\n/, "\n", text)
  gsub(/\\t/, "  ", text)
  gsub(/\\"/, "\"", text)
  gsub(/\\u003c/, "<", text)
  gsub(/\\u003e/, ">", text)
  gsub(/\\u0026/, "\\&", text)
  return text
}

{
  action = field("Action")
  test = field("Test")
  name = field("Package")
  if (name == "") name = field("ImportPath")
  key = name " " test
}
action == "output" || action == "build-output" {
  if (field("Output") ~ /^=== (RUN|PAUSE|CONT)/) next
  if (length(said[key]) < 20000) said[key] = said[key] plain(field("Output"))
  next
}
test != "" && action == "pass" { passed++; delete said[key] }
test != "" && action == "fail" { failed++; broken[name] = 1; printf "FAIL  %s\n%s", key, said[key]; delete said[key] }
test != "" && action == "skip" { skipped++; printf "skip  %s\n%s", key, said[key]; delete said[key] }
action == "build-fail" { printf "FAIL  %s does not build\n%s", name, said[key] }
test == "" && action == "fail" && !(name in broken) { failed++; printf "FAIL  %s\n%s", name, said[key] }
END { print passed + 0, failed + 0, skipped + 0 }
