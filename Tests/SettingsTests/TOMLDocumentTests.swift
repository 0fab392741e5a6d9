// TOML 1.0, and bytes that are not.
import TestSupport
import Testing

@testable import Settings

/// The document in one line, keys sorted, so that trees can be compared.
private func dump(_ value: TOMLValue) -> String {
    switch value {
    case .string(let text): "\"\(text)\""
    case .integer(let value): "\(value)"
    case .float(let value): "\(value)"
    case .boolean(let value): "\(value)"
    case .dateOrTime: "date"
    case .array(let nodes): "[" + nodes.map { dump($0.value) }.joined(separator: ",") + "]"
    case .table(let table):
        "{" + table.entries.sorted { $0.key < $1.key }.map { "\($0.key)=\(dump($0.node.value))" }.joined(separator: ",")
            + "}"
    }
}

private func parse(_ text: String) throws(TOMLSyntaxError) -> String {
    dump(.table(try parseTOML(Array(text.utf8))))
}

@Suite struct TOMLDocumentTests {
    @Test(arguments: [
        ("a = 1\r\nb.c.d = 2\nb.'x y' = 3", "{a=1,b={c={d=2},x y=3}}"),
        ("[a.b]\nx=1\n[a]\ny=2\n[a.c]", "{a={b={x=1},c={},y=2}}"),
        ("[[a]]\nx=1\n[[a.b]]\ny=2\n[[a]]", "{a=[{b=[{y=2}],x=1},{}]}"),
        ("a=1_000\nb=-17\nc=0xDEAD_beef\nd=0o17\ne=0b101\nf=+9", "{a=1000,b=-17,c=3735928559,d=15,e=5,f=9}"),
        ("a=9223372036854775807\nb=-9223372036854775808", "{a=9223372036854775807,b=-9223372036854775808}"),
        ("a=1.5\nb=-0.25e2\nc=1e3\nd=6.02_1E+2", "{a=1.5,b=-25.0,c=1000.0,d=602.1}"),
        ("a=inf\nb=-inf\nc=true\nd=false", "{a=inf,b=-inf,c=true,d=false}"),
        ("a={x=1, y.z=2, w={}}\nb=[[1,2],[\"a\"],]", "{a={w={},x=1,y={z=2}},b=[[1,2],[\"a\"]]}"),
        ("a=\"\"\"\nx\\\n   y\"\"z\"\"\"\"\"", "{a=\"xy\"\"z\"\"\"}"),
        ("a='''\nC:\\d'''", "{a=\"C:\\d\"}"),
        ("a=\"\\t\\u00e4\\U0001F600\\\\\"", "{a=\"\tä😀\\\"}"),
        ("\u{FEFF}a=1 # c", "{a=1}"),
        ("\"\" = 1\n1.2 = 3", "{=1,1={2=3}}"),
        ("", "{}"),
        ("a=1979-05-27\nb=07:32:00", "{a=date,b=date}"),
        ("[fruit]\napple.colour=1\n[fruit.apple.taste]\nsweet=true", "{fruit={apple={colour=1,taste={sweet=true}}}}"),
    ])
    func `valid documents are understood`(text: String, tree: String) throws {
        #expect(try parse(text) == tree)
    }

    @Test(arguments: [
        "a", "a =", "= 1", "a = 1 b = 2", "a = 1\na = 2", "[a]\n[a]", "[a", "[a]]", "[[a]\n", "[]", "a. = 1",
        "a=01", "a=1__0", "a=_1", "a=1_", "a=0x", "a=0xG", "a=-0x1", "a=1.", "a=.5", "a=1e", "a=00.5", "a=++1",
        "a=9223372036854775808", "a=tru", "a=\"x", "a='x", "a=\"x\ny\"", "a=\"\\q\"", "a=\"\\u12\"", "a=\"\\uD800\"",
        "a=\"\"\"x", "a=[1", "a=[1 2]", "a=[,]", "a={x=1,}", "a={x=1", "a={x=1\n}", "a={x=1}\na.y=2", "a={}\n[a.b]",
        "a=[]\n[[a]]", "[[a]]\n[a]", "[a]\nx.y=1\n[a.x]", "[a.b.c]\nz=9\n[a]\nb.c.t=1", "a=1\na.b=2", "a=1\n[a.b]",
        "a=\"\u{01}\"", "# \u{00}", "a=1\rb=2", "a = \u{00}",
    ])
    func `invalid documents are refused`(text: String) {
        #expect(throws: TOMLSyntaxError.self) { try parse(text) }
    }

    /// Documents cut, spliced and overwritten at random: each is read or refused, at a place within the text.
    @Test func `mutated documents never crash`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        let fragments = [
            "a", "b.c", " = ", "=", "1", "-0x7F", "1.5e3", "\"", "'", "\"\"\"", "'''", "[", "]", "[[", "]]", "{", "}",
            ",",
            ".", "\n", "\r\n", "#", "true", "\\u00e4", "\\", "ä", "😀", " ", "inf", "_", "[a.b]\n", "x = [ 1, \"s\" ]\n",
        ].map { Array($0.utf8) }
        for _ in 0..<20_000 {
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 0...24, using: &random) {
                bytes += fragments[Int.random(in: 0..<fragments.count, using: &random)]
            }
            for _ in 0..<Int.random(in: 0...2, using: &random) where !bytes.isEmpty {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            do {
                try SettingsFile.read(bytes: bytes, file: "fuzz") { root in
                    _ = root.optional("a", .duration(in: .zero ... .seconds(1)))
                    _ = root.optional("x", .array(of: .integer(in: 0...9)))
                    _ = root.tables("b")
                    _ = root.namedTables("c")
                }
            } catch {
                let lines = bytes.count { $0 == UInt8(ascii: "\n") } + 1
                for problem in error.problems {
                    let line = problem.position?.line ?? 0
                    #expect((1...lines).contains(line), "seed \(seed): \(problem) in \(bytes)")
                }
            }
        }
    }

    @Test func `a near name is found and a far one is not`() {
        #expect(nearestName(to: "gesutre", among: ["gesture", "name"]) == "gesture")
        #expect(nearestName(to: "Name", among: ["gesture", "name"]) == "name")
        #expect(nearestName(to: "relay", among: ["gesture", "name"]) == nil)
        #expect(nearestName(to: "", among: ["gesture"]) == nil)
        #expect(nearestName(to: String(repeating: "x", count: 100_000), among: ["x"]) == nil)
    }
}
