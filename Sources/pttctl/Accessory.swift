// pttctl accessory …: the buttons and microphones that the daemon looks after. Each command is in a file of its own.
import ArgumentParser
import DBus
import PTTBus
import Terminal

/// `pttctl accessory`.
struct AccessoryCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "accessory", abstract: "Set up, try and look after talk buttons.",
        discussion: """
            'pttctl accessory scan' shows a new button when it is pressed, 'add' adds it, 'test' tries it without \
            transmitting, and 'learn' makes a profile for a button that no profile matches.
            """,
        subcommands: [
            AccessoryList.self, AccessoryScan.self, AccessoryAdd.self, AccessoryTest.self, AccessoryLearn.self,
            AccessoryBind.self, AccessoryGesture.self, AccessoryBondedOnly.self, AccessoryRemove.self,
        ], defaultSubcommand: AccessoryList.self)
}

/// An accessory as a command line names it.
struct ChosenAccessory {
    /// Where it is.
    var path: DBusObjectPath
    /// What it says of itself.
    var properties: AccessoryProperties

    /// The one accessory whose id, name or address is `text`; letters may be large or small when that leaves no doubt.
    ///
    /// - Throws: `Failure` that says which there are.
    static func find(_ text: String, in snapshot: DaemonSnapshot) throws -> ChosenAccessory {
        let all = snapshot.accessories.sorted { $0.key < $1.key }.map {
            ChosenAccessory(path: $0.key, properties: $0.value)
        }
        let tests: [(AccessoryProperties) -> Bool] = [
            { $0.id == text }, { $0.name == text },
            {
                [$0.id, $0.name, $0.address].contains { !$0.isEmpty && $0.lowercased() == text.lowercased() }
            },
        ]
        for test in tests {
            let fitting = all.filter { test($0.properties) }
            if fitting.count == 1 { return fitting[0] }
            guard fitting.isEmpty else {
                let ids = fitting.map { $0.properties.id.shellWord }.joined(separator: ", ")
                throw Failure("several accessories are called '\(text.plain(limit: 64))'; name one of them: \(ids)")
            }
        }
        guard !all.isEmpty else {
            throw Failure("there is no accessory yet; 'pttctl accessory scan' looks for buttons, 'add' takes one")
        }
        let ids = all.map(\.properties.id)
        let hint = NearestName.hint(text, among: ids + all.map(\.properties.name))
        throw Failure(
            "there is no accessory '\(text.plain(limit: 64))'; \(hint.plain())there are: "
                + ids.map(\.shellWord).joined(separator: ", "))
    }

    /// Its name and address, for people.
    var title: String {
        let name = (properties.name.isEmpty ? properties.id : properties.name).plain(limit: 64)
        return properties.address.isEmpty || properties.address == name
            ? name : "\(name) (\(properties.address.plain(limit: 32)))"
    }

    /// As it is now.
    func again(_ daemon: DaemonClient) async throws -> AccessoryProperties {
        try await daemon.refresh()
        return await daemon.snapshot.accessories[path] ?? properties
    }
}

extension String {
    /// The text as one word of a command line; harmless on a terminal.
    var shellWord: String {
        let text = plain(limit: 128)
        let isPlain = !text.isEmpty && text.utf8.allSatisfy(\.isPlainInShells)
        return isPlain ? text : "'" + text.replacing("'", with: "'\\''") + "'"
    }

    /// Whether it has the form of a Bluetooth address, 00:11:22:33:44:55.
    var isBluetoothAddress: Bool {
        let parts = split(separator: ":", omittingEmptySubsequences: false)
        return parts.count == 6
            && parts.allSatisfy { $0.utf8.count == 2 && $0.allSatisfy { $0.isASCII && $0.isHexDigit } }
    }

    /// Whether an address was meant that is none: with a slip in it, a pair too many or too few, or other signs between.
    var resemblesBluetoothAddress: Bool {
        let parts = split(omittingEmptySubsequences: false) { ":-".contains($0) }
        return !isBluetoothAddress && (5...7).contains(parts.count) && parts.allSatisfy { (1...3).contains($0.count) }
    }
}

extension UInt8 {
    /// Whether no shell takes it for anything but itself.
    var isPlainInShells: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: ":"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "-"), UInt8(ascii: "+"):
            true
        default: false
        }
    }
}
