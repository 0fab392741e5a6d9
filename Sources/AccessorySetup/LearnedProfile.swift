// The profile that is made of what was learned.
import Accessories
import BlueZ
import Glibc
import Vocabulary

extension AccessoryProfile {
    /// The profile of a learned button.
    ///
    /// - Parameters:
    ///   - id: Its id, which no other has.
    ///   - title: What people are shown.
    ///   - device: The Bluetooth device; nil of a wired one.
    ///   - local: The input device or serial port; nil when it was heard by Bluetooth.
    ///   - date: The day, as "2026-11-21".
    init(
        _ learned: LearnedRule, id: String, title: String, device: DeviceFacts?, local: LocalDeviceFacts?, date: String
    ) {
        let place = local?.name ?? device?.address ?? "this machine"
        self.init(id: id, title: title, confidence: .capture, sources: ["learned on \(date) at \(place)"])
        var input = Input(rule: learned.rule)
        input.repeats = learned.repeats
        switch learned.source {
        case .characteristic(let service, let characteristic):
            transport = .gatt
            (input.service, input.characteristic) = (service, characteristic)
            if device?.services.contains("180f") == true { battery = .service }
            // Without a name only a service of the maker's own says what it is.
            serviceIdentifies = device?.name == nil && !service.isAssigned
        case .stream(.serialPort): transport = .spp
        case .stream(.handsFree): transport = .handsFree
        case .keys: (transport, bonding) = (.input, .never)
        case .serial: (transport, bonding) = (.serial, .never)
        }
        inputs = [input]
        if let name = local?.name ?? device?.name { names = [NamePattern(name)] }
        if let identifier = local?.device, transport == .input { inputDevices = [identifier] }
        // Nothing about it is its own: it is used where it is named.
        isExplicitOnly = names.isEmpty && !serviceIdentifies && inputDevices.isEmpty
        if case .text(let rule) = learned.rule, rule.batteryPrefix != nil { battery = .text }
        gestures = [.ptt: learned.isToggleOnly ? .toggle : .hold]
        if learned.isToggleOnly { toggleOnly = [.ptt] }
        if learned.bounces { timing.debounce = RuleInference.bounceTime }
    }

    /// Today, as profiles write it.
    static var today: String {
        var now = time(nil)
        var day = tm()
        gmtime_r(&now, &day)
        func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return "\(day.tm_year + 1900)-\(two(day.tm_mon + 1))-\(two(day.tm_mday))"
    }
}
