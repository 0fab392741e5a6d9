// What callers give about accessories: addresses, and the options of adding and learning.
import DBus
import PTTBus
import Vocabulary

extension Arguments {
    /// A Bluetooth address in argument `index`, in capitals; nil for an empty one.
    func optionalBluetoothAddress(_ index: Int) throws(DBusErrorReply) -> String? {
        let text: String = try value(index)
        guard !text.isEmpty else { return nil }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard text.utf8.count == 17, parts.count == 6,
            parts.allSatisfy({ $0.utf8.count == 2 && $0.allSatisfy(\.isHexDigit) })
        else {
            throw .invalidArguments(
                "'\(Self.shown(text))' is not a Bluetooth address; write it like 00:11:22:33:44:55, as 'pttctl accessory scan' shows it"
            )
        }
        return text.uppercased()
    }

    func bluetoothAddress(_ index: Int) throws(DBusErrorReply) -> String {
        guard let address = try optionalBluetoothAddress(index) else {
            throw .invalidArguments("the address is empty; write it like 00:11:22:33:44:55")
        }
        return address
    }

    /// What `AddAccessory` asks for.
    func addition() throws(DBusErrorReply) -> AccessoryAddition {
        let options = try options(1, known: ["Name", "Profile", "Gesture", "BondedOnly", "Pair"])
        var result = AccessoryAddition(address: try bluetoothAddress(0))
        result.name = try Self.optionalName(options, "Name")
        result.profileID = try Self.optionalName(options, "Profile")
        if let value = options["Gesture"] {
            result.gesture = try Self.choice(try Self.string(value, "Gesture"), "Gesture", Gesture.choices, \.rawValue)
        }
        if let value = options["BondedOnly"] { result.isBondedOnly = try Self.boolean(value, "BondedOnly") }
        if let value = options["Pair"] { result.pairs = try Self.boolean(value, "Pair") }
        if result.isBondedOnly, result.pairs == false {
            throw .invalidArguments("'BondedOnly' needs 'Pair': pairing makes the bond")
        }
        return result
    }

    /// What `StartLearning` asks for.
    func learningRequest() throws(DBusErrorReply) -> LearningRequest {
        let options = try options(1, known: ["Name", "Add"])
        return LearningRequest(
            address: try optionalBluetoothAddress(0), name: try Self.optionalName(options, "Name"),
            addsAccessory: try options["Add"].map { value throws(DBusErrorReply) in
                try Self.boolean(value, "Add")
            } ?? true)
    }

    private static func optionalName(
        _ options: [String: DBusValue], _ key: String
    ) throws(DBusErrorReply) -> String? {
        guard let value = options[key] else { return nil }
        return try check(try string(value, key), key, bytes: 1...PTTBusLimits.accessoryNameBytes)
    }

    private static func boolean(_ value: DBusValue, _ name: String) throws(DBusErrorReply) -> Bool {
        guard case .boolean(let flag) = value else {
            throw .invalidArguments("option '\(name)' is of type '\(value.type)'; give 'b'")
        }
        return flag
    }
}
