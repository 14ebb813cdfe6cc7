// What the scripts in lib/ define: DataTables and Vega-Embed.
declare const DataTable: any;
declare function vegaEmbed(container: HTMLElement, specification: object, options: object): Promise<{ view: any }>;
