// The documents say what the program does.
import FoundationEssentials
import Testing

@testable import pttd

@Suite struct DocumentTests {
    private func document(_ name: String, in folder: String = "docs") throws -> String {
        let path = "\(#filePath)".replacing("Tests/pttdTests/DocumentTests.swift", with: "\(folder)/\(name)")
        return String(decoding: try Data(contentsOf: URL(filePath: path)), as: UTF8.self)
    }

    @Test(arguments: Configuration.proxyVariables)
    func `the manual page has the variables of proxies`(variable: String) throws {
        let words = try document("man/pttd.8").split { $0.isWhitespace }
        #expect(words.contains(variable[...]))
    }

    @Test func `the limits that a button's command is said to have are those of a user's service`() throws {
        let section = try document("installers.md").split(separator: "### `command: PROGRAM ARGUMENTS`").last ?? ""
        let named = section.prefix { $0 != "#" }.matches(of: /`([A-Za-z]+)=`/).map { $0.output.1 }
        let unit = try document("pttd.service", in: "systemd/user").split(separator: "\n")
        #expect(named.count == 3)
        for name in named { #expect(unit.contains("\(name)=yes"), "\(name)") }
    }

    @Test func `what a join says without a network is quoted as it is said`() throws {
        let beginning = "pttctl: Bluetooth sees the channel"
        let quoted = try document("nearby.md").split(separator: "\n").filter { $0.hasPrefix(beginning) }
        #expect(quoted.count == 1)
        let said = "pttctl: " + NearbyChannels.noNetwork(to: "Anna", knowsAccessPoint: false)
        for line in quoted { #expect(said.hasPrefix(line.dropLast()) && line.hasSuffix("…"), "\(line)") }
    }
}
