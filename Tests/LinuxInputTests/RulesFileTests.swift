import Glibc
// The udev files as shipped: they tag nothing by themselves, and their examples say what this module understands.
import TestSupport
import Testing

@testable import LinuxInput

@Suite struct RulesFileTests {
    private func lines(_ name: String) throws -> [Substring] {
        let root = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        let file = try #require(fopen("/\(root)/udev/\(name)", "r"), "\(name) is not there")
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = fread(&bytes, 1, bytes.count, file)
        try #require(count > 0 && count < bytes.count)
        return String(decoding: bytes.prefix(count), as: UTF8.self).split(separator: "\n")
    }

    /// The properties that a rule sets: ENV{NAME}="value".
    private func properties(_ line: Substring) -> [String: String] {
        var properties: [String: String] = [:]
        for part in line.split(separator: ",") {
            let part = part.drop { $0 == " " }
            guard part.hasPrefix("ENV{PTTD_"), let end = part.firstIndex(of: "}") else { continue }
            let rest = part[part.index(after: end)...]
            guard rest.hasPrefix("=\""), rest.hasSuffix("\"") else { continue }
            properties[String(part[..<end].dropFirst(4))] = String(rest.dropFirst(2).dropLast())
        }
        return properties
    }

    @Test func `nothing is tagged as shipped but what the database names`() throws {
        let rules = try lines("60-pttd.rules").filter { !$0.hasPrefix("#") }
        #expect(rules.filter { $0.contains("TAG+=") } == [#"ENV{PTTD_PROFILE}=="?*", TAG+="pttd""#])
        #expect(rules.allSatisfy { properties($0).isEmpty })
        #expect(try lines("60-pttd.hwdb").allSatisfy { $0.hasPrefix("#") })
    }

    @Test func `every example is understood`() throws {
        let examples = try lines("60-pttd.rules").filter { $0.hasPrefix("#SUBSYSTEM") }
        #expect(examples.count >= 8)
        for example in examples {
            let rule = InputDeviceRule(properties: properties(example))
            #expect(rule.problems.isEmpty, "\(example)")
            #expect(rule.profileID != nil && example.contains(#"TAG+="pttd""#), "\(example)")
            #expect((rule.line != nil) == example.contains("PTTD_LINE"), "\(example)")
        }
        let entries = try lines("60-pttd.hwdb").filter { $0.hasPrefix("# PTTD_") }
        #expect(entries.count >= 4)
        for entry in entries {
            let parts = entry.dropFirst(2).split(separator: "=", maxSplits: 1).map(String.init)
            #expect(InputDeviceRule(properties: [parts[0]: parts[1]]).problems.isEmpty, "\(entry)")
        }
    }

    @Test func `only tagged devices are given away and before the users access is set`() throws {
        // udev reads files in the order of their names.
        #expect("70-pttd.rules" < "72-pttd-access.rules" && "72-pttd-access.rules" < "73-seat-late.rules")
        let rules = try lines("72-pttd-access.rules").filter { $0.hasPrefix("SUBSYSTEM") }
        #expect(rules.count == 2)
        for rule in rules {
            #expect(rule.contains(#"TAG=="pttd", GROUP="pttd", MODE="0640", TAG+="uaccess""#), "\(rule)")
        }
    }
}
