// Reads typed properties from BlueZ's messages. A property of a wrong type is reported and ignored.
import DBus

/// The properties of one message.
struct PropertyReader {
    private let properties: [String: DBusValue]
    private(set) var complaints: [String] = []

    init(_ properties: [String: DBusValue]) { self.properties = properties }

    func has(_ name: String) -> Bool { properties[name] != nil }

    mutating func take<T: DBusConvertible>(_ name: String) -> T? {
        guard let value = properties[name] else { return nil }
        if let result: T = value.get() { return result }
        complaints.append("\(name) of type '\(value.type)', expected '\(T.dbusType)'")
        return nil
    }

    mutating func take<T: DBusConvertible>(_ name: String, into target: inout T) {
        if let value: T = take(name) { target = value }
    }

    mutating func complain(_ name: String) { complaints.append("\(name) has an invalid value") }
}
