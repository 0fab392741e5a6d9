// A button that somebody wears: what is physically so, whatever anybody was told of it.
import BlueZ
import MonotonicTime

@testable import Accessories

/// One Bluetooth button.
final class Button {
    /// What a finger can hold.
    enum Key: Int, CaseIterable {
        case talk
        case emergency
    }

    /// The families that there are: one tells a value, one a mask, and one words over a serial port (RFCOMM).
    enum Family: String {
        case value = "ptt-z"
        case mask = "aina-v2"
        case words = "aina-v1-spp"
    }

    let number: Int
    let family: Family
    let id: DeviceIdentifier
    let address: String
    let characteristic: CharacteristicIdentifier
    private let profile: AccessoryProfile
    /// How many fingers hold each key.
    private(set) var fingers: [Key: Int] = [:]
    /// When a finger last came down on it.
    private(set) var edge: Instant?
    /// When it last told its state, whether anybody heard it or not.
    var toldAt = Instant.zero
    /// It is near.
    var isInReach = true
    /// Until when what it notifies is lost.
    var mutedUntil = Instant.zero
    /// It has been held since before its link, or pttd, was lost, or since before a hang of bluetoothd: what it repeats then tells of no fresh press.
    private(set) var isHeldThroughLoss = false
    /// A key came up and nobody was told.
    var hasLostRelease = false
    /// It was held through a hang of bluetoothd and told nothing for so long afterwards that it counts as up.
    var countsAsUp = false
    /// The AINA's bit that flips with each repetition.
    private var flips = false

    init(device: Int, number: Int, library: ProfileLibrary) {
        self.number = number
        family = [.value, .mask, .words][number]
        let path = "/org/bluez/hci0/dev_00_11_22_33_4\(device)_0\(number)"
        guard let profile = library[family.rawValue], let id = DeviceIdentifier(path: path),
            let characteristic = CharacteristicIdentifier(path: "\(path)/service0010/char0010")
        else { preconditionFailure("the shipped profiles have \(family.rawValue)") }
        self.profile = profile
        self.id = id
        self.characteristic = characteristic
        address = "00:11:22:33:4\(device):0\(number)"
    }

    /// As BlueZ knows it at first.
    var facts: DeviceFacts {
        DeviceFacts(
            id: id, address: address, name: family == .value ? "PTT-Z" : "APTT12",
            services: isStream ? ["1101"] : Set(profile.services),
            isPaired: false, isTrusted: false, isConnected: false, servicesResolved: false, battery: nil,
            characteristics: profile.inputs.prefix(1).compactMap { input in
                guard let service = input.service, let uuid = input.characteristic else { return nil }
                return CharacteristicFacts(id: characteristic, service: service, characteristic: uuid)
            })
    }

    var configuration: AccessoryConfiguration {
        AccessoryConfiguration(id: AccessoryID("button\(number)"), address: address, profileID: family.rawValue)
    }

    /// It has a serial port. Its bytes come from the kernel, not from bluetoothd.
    var isStream: Bool { family == .words }

    func isDown(_ key: Key) -> Bool { fingers[key, default: 0] > 0 }

    var isDown: Bool { Key.allCases.contains { isDown($0) } }

    /// A finger comes or goes. True: the key's state is another one.
    func touch(_ key: Key, _ isPress: Bool, at now: Instant) -> Bool {
        let before = isDown(key)
        if isPress, !before { edge = now }
        fingers[key, default: 0] += isPress ? 1 : -1
        if !isDown { (isHeldThroughLoss, countsAsUp) = (false, false) }
        return before != isDown(key)
    }

    /// Its link, bluetoothd or pttd is gone, or bluetoothd hangs.
    func isLost() { isHeldThroughLoss = isDown }

    /// A value that means nothing: no control has it.
    func noise(_ value: Int) -> [UInt8] {
        switch family {
        case .value: [UInt8(truncatingIfNeeded: max(2, value & 0xFF))]
        case .mask: [value % 2 == 0 ? 0x40 : 0xC0]
        case .words: Array("+ERR=\(value)\r\n".utf8)
        }
    }

    /// The value that tells its state.
    func value(isRepetition: Bool) -> [UInt8] {
        switch family {
        case .value: return [isDown(.talk) ? 1 : 0]
        case .mask:
            if isRepetition { flips.toggle() } else { flips = false }
            let mask: UInt8 = (isDown(.talk) ? 1 : 0) | (isDown(.emergency) ? 2 : 0)
            return [mask | (flips && mask != 0 ? 0x80 : 0)]
        case .words: return Array("+PTT=\(isDown(.talk) ? "P" : "R")".utf8)
        }
    }
}
