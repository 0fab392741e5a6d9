// The files that keep what people added: read as they were written, and damage told.
import BlueZ
import Files
import FoundationEssentials
import MonotonicTime
import Settings
import TestSupport
import Testing
import Vocabulary

@testable import Accessories
@testable import AccessorySetup

/// Whether there is a file.
func fileExists(_ path: String) -> Bool { AtomicFile.exists(path) }

@Suite struct AccessoryStoreTests {
    @Test func whatIsWrittenIsRead() throws {
        let state = try StateDirectory()
        let store = AccessoryStore(directory: state.path)
        var contents = AccessoryStore.Contents()
        contents.accessories = [
            AccessoryConfiguration(
                id: AccessoryID("vest"), address: "C4:00:00:00:00:01", profileID: "ptt-z", gesture: .toggle,
                isBondedOnly: true),
            AccessoryConfiguration(id: AccessoryID("C4:00:00:00:00:02"), address: "C4:00:00:00:00:02"),
            AccessoryConfiguration(
                id: AccessoryID("ear"), address: "C4:00:00:00:00:03", name: NamePattern("A \"PTT\" \\ \u{1} ü*"),
                bindings: [.ptt: .emergency, .soft1: .channelUp]),
        ]
        contents.changes[AccessoryID("desk")] = .init(
            gesture: .hold, isBondedOnly: false, bindings: [.ptt: .command(["/bin/echo", "a b", "\"c\""])])
        try store.save(contents)
        let (read, problem) = store.load(allowsCommands: true)
        #expect(problem == nil)
        #expect(read == contents)
    }

    @Test func theConfigurationHasTheLastWord() throws {
        let state = try StateDirectory()
        let store = AccessoryStore(directory: state.path)
        var contents = AccessoryStore.Contents()
        contents.accessories = [
            AccessoryConfiguration(id: AccessoryID("vest"), address: "C4:00:00:00:00:01"),
            AccessoryConfiguration(id: AccessoryID("other"), address: "C4:00:00:00:00:02"),
            AccessoryConfiguration(id: AccessoryID("mine"), address: "C4:00:00:00:00:03"),
        ]
        try store.save(contents)
        let restored = store.restore(
            AccessorySettings(accessories: [
                AccessoryConfiguration(id: AccessoryID("vest"), address: "C4:00:00:00:00:09"),
                AccessoryConfiguration(id: AccessoryID("known"), address: "C4:00:00:00:00:02"),
            ]))
        #expect(restored.settings.accessories.map(\.id.text) == ["vest", "known", "mine"])
        #expect(restored.settings.accessories.first?.address == "C4:00:00:00:00:09")
        #expect(restored.problems.count == 2)
    }

    /// An earlier version wrote "false" of each accessory of which nobody had said anything.
    @Test(arguments: ["", "bonded-only = false\n"])
    func anAddedAccessoryHasToBeBondedWhereTheConfigurationAsksForThat(line: String) throws {
        let state = try StateDirectory()
        let store = AccessoryStore(directory: state.path)
        try AtomicFile.write(Array("[accessory.vest]\naddress = \"C4:00:00:00:00:01\"\n\(line)".utf8), to: store.path)
        let restored = store.restore(AccessorySettings(isBondedOnly: true))
        #expect(restored.problems.isEmpty)
        #expect(restored.settings.accessories.map(\.isBondedOnly) == [true])
        // It is not kept, so that it ends with the configuration's word.
        try store.save(restored.contents)
        #expect(store.restore(AccessorySettings()).settings.accessories.map(\.isBondedOnly) == [false])
    }

    @Test func aDamagedFileIsSetAsideAndTheStartGoesOn() throws {
        var random = SeededGenerator()
        let state = try StateDirectory()
        let store = AccessoryStore(directory: state.path)
        var contents = AccessoryStore.Contents()
        contents.accessories = [AccessoryConfiguration(id: AccessoryID("vest"), address: "C4:00:00:00:00:01")]
        try store.save(contents)
        let good = try SettingsFile.contents(of: store.path)
        var damages = 0
        for _ in 0..<200 {
            var bytes = good
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes = Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &random)))
                case 1 where !bytes.isEmpty:
                    bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
                default: bytes.insert(contentsOf: random.bytes(3), at: Int.random(in: 0...bytes.count, using: &random))
                }
            }
            try AtomicFile.write(bytes, to: store.path)
            let restored = store.restore(AccessorySettings())
            guard !restored.problems.isEmpty else { continue }
            damages += 1
            #expect(restored.settings.accessories.isEmpty)
            #expect(AtomicFile.exists(store.path + ".damaged-1") && !AtomicFile.exists(store.path))
            #expect(store.restore(AccessorySettings()).problems.isEmpty)
        }
        #expect(damages > 50)
    }

    @Test func whatCannotBeWrittenIsToldAndChangesNothing() throws {
        let store = AccessoryStore(directory: "/proc/nowhere")
        #expect(throws: FileError.self) { try store.save(AccessoryStore.Contents()) }
        #expect(store.restore(AccessorySettings()).problems.isEmpty)
    }

    @Test func namesAreMadeOfWhatDevicesCallThemselves() {
        #expect(AccessoryNames.name(from: "PTT-Z", fallback: "x") == "ptt-z")
        #expect(AccessoryNames.name(from: "  BBC micro:bit [zuvop] ", fallback: "x") == "bbc-micro-bit-zuvop")
        #expect(AccessoryNames.name(from: "按钮 ÄÖ", fallback: "button") == "button")
        #expect(AccessoryNames.name(from: nil, fallback: "button") == "button")
        #expect(AccessoryNames.name(from: String(repeating: "a", count: 500), fallback: "x").utf8.count == 48)
        let taken: Set<String> = ["a", "a-2"]
        #expect(AccessoryNames.unique("a") { taken.contains($0) } == "a-3")
        #expect(!AccessoryNames.isValid("") && !AccessoryNames.isValid("a b") && AccessoryNames.isValid("Left_1"))
    }
}
